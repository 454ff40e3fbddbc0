-- Log lines: what the handlers of a task have logged, attempt by attempt.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: add_log_lines
-- Promise: each line is stored under its task and token, if the task exists and has issued the token, and the attempt is
-- possible under it (every attempt has a token of its own); a line that is stored already stays as it is. Parameters: items (a JSON array of objects with task_id, token, number, attempt, at,
-- level, logger, message). Rows: (task_id) of each line that was not stored before. Index: the primary keys.
-- Safe: the write lock is held, so the task is not pruned between the check and the commit.
INSERT INTO dibs_log_lines (task_id, token, number, attempt, at, level, logger, message)
SELECT task.id, item.value ->> 'token', item.value ->> 'number', item.value ->> 'attempt', item.value ->> 'at',
    item.value ->> 'level', item.value ->> 'logger', item.value ->> 'message'
FROM json_each(:items) AS item CROSS JOIN dibs_tasks AS task NOT INDEXED
WHERE task.id = item.value ->> 'task_id' AND task.token >= item.value ->> 'token'
  AND item.value ->> 'attempt' <= item.value ->> 'token'
ON CONFLICT DO NOTHING
RETURNING task_id
