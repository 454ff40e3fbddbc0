-- The dialect of this engine: fragments that every engine has under the same names, and the columns that Python reads
-- by position.

-- fragment: with_moment
-- Begins a statement that uses `now`.
WITH {{moment}}

-- fragment: now
-- The statement's time. The statement begins with `with_moment` or `change`.
(SELECT now FROM moment)

-- fragment: moment
-- The statement's time, read once from the database's clock; a test passes its own time.
moment AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)

-- fragment: change
-- Begins a statement that changes tasks. Its RETURNING lists the history columns first; `note_change` ends it.
WITH {{moment}},
changed (task_id, event, from_state, to_state, by_worker, under_token, detail) AS (

-- fragment: note_change
-- Ends a statement that changes tasks: each change gets its entry of the history in the same statement.
),
{{noted}}
SELECT * FROM changed

-- fragment: noted
-- One entry of the history for each row of `changed`, in the same statement.
noted AS (
    INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
    SELECT task_id, event, from_state, to_state, by_worker, under_token, detail, :by::text, moment.now
    FROM changed, moment
)

-- fragment: in
-- A condition: equal to one of the integers in the parameter of this name.
= ANY(:{{argument}}::bigint[])

-- fragment: in_text
-- A condition: equal to one of the texts in the parameter of this name.
= ANY(:{{argument}}::text[])

-- fragment: in_select
-- A condition: equal to a row of this query. An array is computed once, whatever plan the rest of the statement has:
-- the query may lock its rows, and must not run a second time.
= ANY (ARRAY({{argument}}))

-- fragment: indexed_by
-- Names the index that the query must use. PostgreSQL has no such clause; the order of the rows leads the planner.

-- fragment: not_indexed
-- Names the primary key as the only way to the rows. PostgreSQL has no such clause.

-- fragment: unindexed
-- The column of a row that is looked up by its id, in a form that no partial index matches: the look-up must use the
-- primary key. A plan made while the queue was empty would otherwise walk through a whole partial index once it is
-- full.
({{argument}} || '')

-- fragment: claimable
-- A condition: the task is pending, not parked, and no limit or fair queue applies to it. The partial indexes of the
-- orders of claiming have it.
state = 'pending' AND NOT parked AND backlog IS NULL

-- fragment: unregistered
-- A condition: the task waits in a backlog that has not registered it. The form is that of dibs_tasks_unregistered.
state = 'pending' AND backlog IS NOT NULL AND NOT parked

-- fragment: is_parked
-- A condition: the task is parked. The partial index dibs_tasks_parked has it.
state = 'pending' AND parked AND backlog IS NULL

-- fragment: differs_from
-- Compares two values either of which may be NULL.
IS DISTINCT FROM

-- fragment: strpos
-- The function that finds a text in a text.
strpos

-- fragment: text_items
-- The rows `item (value)` of a JSON array of texts.
json_array_elements_text({{argument}}::json) AS item (value)

-- fragment: lock_rows
-- Locks the rows that a SELECT returns, in its order, until the transaction ends.
FOR NO KEY UPDATE

-- fragment: skip_locked
-- Locks the rows that a SELECT returns and skips rows that another transaction has locked.
FOR UPDATE SKIP LOCKED

-- name: one_snapshot
-- Promise: all statements of this transaction, of which it is the first, see the database as it is now. It is
-- read-only, so a concurrent write can never make it fail. Rows: none.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- fragment: task
-- The columns of a task, in the order that `read_task` expects. The alias of the table is `task`.
task.id, task.type, task.queue, task.state, task.params, task.priority, task.attempts, task.max_attempts, task.token,
task.created_at, task.run_at, task.type_version, task.timeout, task.claimed_at, task.lease_until, task.finished_at,
task.worker_id, task.key, task.cancel_requested, task.progress, task.progress_message, task.result, task.error,
task.dropped, task.workflow_id, task.trace, task.set_aside, task.tags, task.expires_at, {{scope_shown}}, task.key_until,
task.limits, task.group_key

-- fragment: error_text
-- The type and message of the column `error`, as `type: message`.
((error::json ->> 'type') || ': ' || (error::json ->> 'message'))

-- fragment: error_head
-- The beginning of an error as JSON, its type and message, without the traceback: errors are grouped by it, and the
-- errors of a group are found again by it, so both must use the same text.
split_part(left(task.error, 400), '","traceback":', 1)
