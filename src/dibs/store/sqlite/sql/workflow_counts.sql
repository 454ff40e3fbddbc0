-- Promise: how many workflows there are in each state, sub-workflows included.
-- Rows: (state, count). Indexes: dibs_workflows_finished and dibs_workflows_running, which have all that is asked for.
-- Those that are neither running nor ended are what is left of all: a third of the time of grouping the rows themselves.
WITH ended AS MATERIALIZED (
    SELECT state, count(*) AS count FROM dibs_workflows INDEXED BY dibs_workflows_finished
    WHERE finished_at IS NOT NULL GROUP BY state
),
running AS MATERIALIZED (
    SELECT count(*) AS count FROM dibs_workflows INDEXED BY dibs_workflows_running WHERE state = 'running'
)
SELECT state, count FROM ended
UNION ALL SELECT 'running', count FROM running
UNION ALL SELECT 'finalizing', (SELECT count(*) FROM dibs_workflows) - (SELECT count FROM running)
                               - (SELECT coalesce(sum(count), 0) FROM ended)
