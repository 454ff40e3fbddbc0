-- Log lines: what the handlers of a task have logged, attempt by attempt.
-- Locks: a write locks the tasks of its lines in the order of their ids; SQLite locks the file for each transaction that
-- writes. A read locks nothing.

-- name: log_lines
-- Promise: lines of this task after (token, number), in order, of one attempt (NULL: of all), of this level and above.
-- Parameters: id, token, number, attempt, level. Words: limit.
-- Rows: (task_id, token, attempt, number, at, level, logger, message). Index: the primary key.
SELECT task_id, token, attempt, number, at, level, logger, message FROM dibs_log_lines
WHERE task_id = :id AND (token, number) > (:token, :number)
  AND (CAST(:attempt AS integer) IS NULL OR attempt = :attempt) AND level >= :level
ORDER BY token, number LIMIT {{limit}}

-- name: log_counts
-- Promise: how many lines each attempt of this task has, and the number of its last one. Parameters: id.
-- Rows: (token, attempt, count, last), in order. Index: the primary key.
SELECT token, max(attempt), count(*), max(number) FROM dibs_log_lines WHERE task_id = :id GROUP BY token ORDER BY token

-- name: task_progress_of_logs
-- Promise: whether the task is finished, and how many of its attempts have ended. Parameters: id.
-- Rows: (finished, attempts); none for a task that does not exist. Index: the primary key.
SELECT finished_at IS NOT NULL, attempts FROM dibs_tasks {{not_indexed}} WHERE id = :id

-- name: delete_log_lines
-- Promise: the log lines of these tasks are deleted. Parameters: ids. Rows: none.
-- Safe: in the transaction that has deleted the tasks, after it. A write of lines holds a lock on its tasks until its
-- commit (see `add_log_lines`), so its lines are visible here, or it finds no task afterwards and writes none.
DELETE FROM dibs_log_lines WHERE task_id {{in: ids}}
