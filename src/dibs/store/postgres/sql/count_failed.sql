-- Promise: how many tasks are in the dead letter, counted up to `limit`. Parameters: limit. Rows: (count).
-- Index: dibs_tasks_finished.
SELECT count(*)
FROM (SELECT id FROM dibs_tasks WHERE state = 'failed' ORDER BY finished_at DESC LIMIT {{limit}}) AS dead
