-- Promise: how many workflows there are in each state, sub-workflows included.
-- Rows: (state, count).
SELECT state, count(*) FROM dibs_workflows GROUP BY state
