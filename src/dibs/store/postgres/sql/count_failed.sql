-- Promise: how many tasks are in the dead letter, counted up to `limit`. Parameters: limit. Rows: (count).
-- Index: dibs_tasks_dead.
SELECT count(*)
FROM (SELECT id FROM dibs_tasks WHERE state = 'failed' AND set_aside IS NULL ORDER BY finished_at DESC LIMIT {{limit}}) AS dead
