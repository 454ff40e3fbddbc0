-- Promise: the newest entries of a task's history, newest first, and how many there are. Parameters: id, limit.
-- Rows: all columns, count. Index: dibs_history_task, which has the ids of a task's entries in order.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail,
       (SELECT count(*) FROM dibs_history WHERE task_id = :id)
FROM dibs_history WHERE task_id = :id ORDER BY id DESC LIMIT {{limit}}
