-- Promise: how many tasks are in the dead letter, counted up to `limit`. Parameters: limit. Rows: (count).
-- Index: dibs_tasks_dead.
SELECT count(*)
FROM (SELECT 1 FROM dibs_tasks INDEXED BY dibs_tasks_dead
      WHERE state = 'failed' AND set_aside IS NULL LIMIT {{limit}})
