-- Promise: how long the last completed tasks waited and ran. Parameters: limit, queues. Rows: (waited, ran).
-- Index: dibs_tasks_finished, from its end.
SELECT claimed_at - ready_at, finished_at - claimed_at FROM dibs_tasks AS task
WHERE state = 'completed' {{conditions}} ORDER BY finished_at DESC LIMIT {{limit}}
