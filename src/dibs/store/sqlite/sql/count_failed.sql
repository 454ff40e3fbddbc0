-- Promise: how many tasks are in the dead letter, counted up to `limit`. Parameters: limit. Rows: (count).
-- Index: dibs_tasks_finished.
SELECT count(*)
FROM (SELECT 1 FROM dibs_tasks INDEXED BY dibs_tasks_finished
      WHERE state IN ('completed', 'failed', 'cancelled') AND state = 'failed' LIMIT {{limit}})
