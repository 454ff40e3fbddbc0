-- What this engine says in its own words, and the columns that Python reads by position.

-- fragment: moment
-- The statement's time, once, from the database's clock; tests hand in their own.
moment AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)

-- name: clock
-- Promise: the database's time. Rows: (now), microseconds.
WITH {{moment}} SELECT now FROM moment

-- fragment: noted
-- One line of history for each row of `changed`, in the same statement.
noted AS (
    INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
    SELECT task_id, event, from_state, to_state, by_worker, under_token, detail, :by::text, moment.now
    FROM changed, moment
)

-- fragment: still
-- The state of a row that is looked up by its id, in a form that no partial index matches: such a look-up must go by
-- the primary key. A plan made while the queue was empty would otherwise walk through a whole partial index once it
-- is full.
(state || '') = {{argument}}

-- name: one_snapshot
-- Promise: all statements of this transaction, of which it is the first, see the database as it is now. Read only, so
-- that it can never fail for what others write. Rows: none.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- fragment: task
-- The columns of a task, in the order that `read_task` expects. A fragment; the table's alias is `task`.
task.id, task.type, task.queue, task.state, task.params, task.priority, task.attempts, task.max_attempts, task.token,
task.created_at, task.run_at, task.type_version, task.timeout, task.claimed_at, task.lease_until, task.finished_at,
task.worker_id, task.key, task.cancel_requested, task.progress, task.progress_message, task.result, task.error,
task.dropped, task.workflow_id, task.trace, task.set_aside

-- fragment: task_line
-- The columns of a line of a list of tasks, in the order that `read_line` expects: of params and error only the
-- beginning, whatever their size.
task.id, task.type, task.state, task.queue, task.priority, task.attempts, task.max_attempts, task.worker_id,
task.created_at, task.run_at, task.claimed_at, task.lease_until, task.finished_at, task.progress, task.workflow_id,
task.key, task.cancel_requested, left(task.params, 200),
left((task.error::json ->> 'type') || ': ' || (task.error::json ->> 'message'), 200), {{error_head}}

-- fragment: error_head
-- The beginning of an error as JSON, its type and message, without the traceback: errors are grouped by it, and those of
-- a group found again, so both have to read the same.
split_part(left(task.error, 400), '","traceback":', 1)
