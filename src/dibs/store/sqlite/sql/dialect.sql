-- The dialect of this engine: fragments that every engine has under the same names, and the columns that Python reads
-- by position.

-- fragment: with_moment
-- Begins a statement that uses `now`. SQLite takes the time as a parameter.

-- fragment: now
-- The statement's time.
:now

-- fragment: change
-- Begins a statement that changes tasks. Its RETURNING lists the history columns first; the executor writes the
-- history.

-- fragment: note_change
-- Ends a statement that changes tasks.

-- name: append_history
-- Promise: one entry of the history for a change, in its transaction. SQLite cannot update one table and insert into
-- another in one statement, so the store appends the rows that a change returned.
-- Parameters: the seven columns that begin every change's rows, then by and now.
INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- fragment: in
-- A condition: equal to one of the integers in the parameter of this name, a JSON array.
IN (SELECT value FROM json_each(:{{argument}}))

-- fragment: in_text
-- A condition: equal to one of the texts in the parameter of this name, a JSON array.
IN (SELECT value FROM json_each(:{{argument}}))

-- fragment: in_select
-- A condition: equal to a row of this query.
IN ({{argument}})

-- fragment: indexed_by
-- Names the index that the query must use.
INDEXED BY {{argument}}

-- fragment: not_indexed
-- Names the primary key as the only way to the rows.
NOT INDEXED

-- fragment: unindexed
-- The column of a row that is looked up by its id, in a form that no partial index matches: the look-up must use the
-- primary key.
+{{argument}}

-- fragment: differs_from
-- Compares two values either of which may be NULL.
IS NOT

-- fragment: strpos
-- The function that finds a text in a text.
instr

-- fragment: text_items
-- The rows `item (value)` of a JSON array of texts.
json_each({{argument}}) AS item

-- fragment: lock_rows
-- Locks the rows that a SELECT returns. On SQLite a transaction that writes holds the lock of the file.

-- fragment: skip_locked
-- Skips rows that another transaction has locked. On SQLite there are none.

-- fragment: claimable
-- A condition: a claim may take the task. The form is that of the partial indexes.
state = 'pending' AND parked = 0 AND backlog IS NULL

-- fragment: unregistered
-- A condition: the task waits in a backlog that has not registered it. The form is that of dibs_tasks_unregistered.
state = 'pending' AND backlog IS NOT NULL AND parked = 0

-- fragment: is_parked
-- A condition: the task is parked. The form is that of dibs_tasks_parked.
state = 'pending' AND parked = 1 AND backlog IS NULL

-- fragment: task
-- The columns of a task, in the order that `read_task` expects.
id, type, queue, state, params, priority, attempts, max_attempts, token, created_at, run_at, type_version, timeout,
claimed_at, lease_until, finished_at, worker_id, key, cancel_requested, progress, progress_message, result, error,
dropped, workflow_id, trace, set_aside, tags, expires_at, {{scope_shown}}, key_until, limits, group_key

-- fragment: error_text
-- The type and message of the column `error`, as `type: message`.
(json_extract(error, '$.type') || ': ' || json_extract(error, '$.message'))

-- fragment: error_head
-- The beginning of an error as JSON, its type and message first: errors are grouped by it, and the errors of a
-- group are found again by it, so both must use the same text.
substr(error, 1, 400)

-- fragment: age_in_store
-- The id, as the index of all tasks by priority has it.
id

-- fragment: age_in_stream
-- The id, as the indexes of streams have it.
id
