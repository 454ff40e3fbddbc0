-- Promise: the steps that have not ended, up to `limit`: less than that are all of them, and what is blocked is among
-- them. Parameters: limit. Rows: (id). Index: dibs_steps_open.
SELECT task_id FROM dibs_steps INDEXED BY dibs_steps_open WHERE passed IS NULL
ORDER BY workflow_id, task_id LIMIT {{limit}}
