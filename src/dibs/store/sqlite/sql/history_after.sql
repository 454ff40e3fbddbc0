-- Promise: a page of the history of all tasks, in order. Parameters: after, limit. Rows: all columns.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail FROM dibs_history
WHERE id > :after ORDER BY id LIMIT {{limit}}
