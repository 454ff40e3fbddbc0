-- Promise: what happened to a task, in order. Parameters: id. Rows: all columns. Index: dibs_history_task.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail FROM dibs_history
WHERE task_id = %(id)s ORDER BY id
