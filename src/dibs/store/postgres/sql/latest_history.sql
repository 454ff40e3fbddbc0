-- Promise: the newest entries of a task's history, newest first, and how many there are. Parameters: id, limit.
-- Rows: all columns, count. Index: dibs_history_task, then the primary key.
-- The ids of the task come first, materialized: for the few newest PostgreSQL would rather read the history of all tasks
-- backwards until it has met them.
WITH own AS MATERIALIZED (SELECT id FROM dibs_history WHERE task_id = %(id)s)
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail, (SELECT count(*) FROM own)
FROM dibs_history
WHERE id = ANY (ARRAY(SELECT id FROM own ORDER BY id DESC LIMIT {{limit}}))
ORDER BY id DESC
