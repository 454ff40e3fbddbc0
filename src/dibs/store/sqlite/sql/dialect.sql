-- What this engine says in its own words, and the columns that Python reads by position.

-- name: clock
-- Promise: the database's time. Rows: (now), microseconds.
SELECT :now

-- name: append_history
-- Promise: one line of history for a change, in its transaction. SQLite cannot update one table and insert into
-- another in one statement, so the store appends the rows that a change returned.
-- Parameters: the seven columns that begin every change's rows, then by and now.
INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- fragment: task
-- The columns of a task, in the order that `read_task` expects.
id, type, queue, state, params, priority, attempts, max_attempts, token, created_at, run_at, type_version, timeout,
claimed_at, lease_until, finished_at, worker_id, key, cancel_requested, progress, progress_message, result, error,
dropped, workflow_id, trace, set_aside

-- fragment: task_line
-- The columns of a line of a list of tasks, in the order that `read_line` expects: of params and error only the
-- beginning, whatever their size.
id, type, state, queue, priority, attempts, max_attempts, worker_id, created_at, run_at, claimed_at, lease_until,
finished_at, progress, workflow_id, key, cancel_requested, substr(params, 1, 200),
substr(json_extract(error, '$.type') || ': ' || json_extract(error, '$.message'), 1, 200), {{error_head}}

-- fragment: error_head
-- The beginning of an error as JSON, its type and message first: errors are grouped by it, and those of a group found
-- again, so both have to read the same.
substr(error, 1, 400)
