-- Changes of tasks without a claim: change, cancel, retry, discard, redrive the dead letter.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: lock_tasks
-- Promise: these tasks as they are until the transaction ends. Parameters: ids.
-- Rows: (id, state, queue, workflow_id, cancel_requested). Index: the primary key.
-- Safe: the rows are locked in the order of their ids, the order of every statement that locks tasks.
SELECT id, state, queue, workflow_id, cancel_requested FROM dibs_tasks WHERE id {{in: ids}} ORDER BY id {{lock_rows}}

-- name: lock_to_change
-- Promise: these tasks as they are until the transaction ends. Parameters: ids, now.
-- Rows: (now, params, tags and run_at as stored, task columns). Index: the primary key.
-- Safe: as `lock_tasks`.
{{with_moment}}
SELECT {{now}}, params, tags, run_at, {{task}}
FROM dibs_tasks AS task WHERE id {{in: ids}} ORDER BY id {{lock_rows}}

-- name: cancel
-- Promise: these waiting tasks are cancelled, if they still are in the state that the caller saw. Parameters: ids,
-- from_state (of all of them: blocked, scheduled or pending), now, by. Rows: history columns; none for a task that
-- moved.
-- Index: the primary key. Safe: the state is compared in the statement that writes; for many ids, `lock_tasks` has
-- locked the rows in the order of their ids.
{{change}}
UPDATE dibs_tasks SET state = 'cancelled', cancel_requested = true, finished_at = {{now}}, parked = false
WHERE id {{in: ids}} AND {{unindexed: state}} = :from_state
RETURNING id, 'cancelled', CAST(:from_state AS text), state, NULL, token, NULL
{{note_change}}

-- name: request_cancel
-- Promise: the workers of these running tasks learn at their next renewal that they should stop.
-- Parameters: ids, from_state (claimed), now, by. Rows: history columns; none for a task that is not claimed any more,
-- or whose cancellation was requested before. Index: the primary key. Safe: as `cancel`.
{{change}}
UPDATE dibs_tasks SET cancel_requested = true
WHERE id {{in: ids}} AND {{unindexed: state}} = :from_state AND NOT cancel_requested
RETURNING id, 'cancel_requested', 'claimed', state, worker_id, token, NULL
{{note_change}}

-- name: restore
-- Promise: the discarded ones among these failed tasks are in the dead letter again, to be retried next.
-- Parameters: ids, now, by. Rows: history columns. Index: the primary key.
-- Safe: the retry that follows clears set_aside as well, so a task that is discarded between the two is not pending and
-- discarded at once.
{{change}}
UPDATE dibs_tasks SET set_aside = NULL
WHERE id {{in: ids}} AND {{unindexed: state}} = 'failed' AND set_aside = 'discarded'
RETURNING id, 'restored', 'failed', state, NULL, token, NULL
{{note_change}}

-- name: discard
-- Promise: the ones among these tasks that are in the dead letter are discarded: they stay failed and leave the dead
-- letter.
-- Parameters: ids, now, by. Rows: history columns. Index: the primary key.
-- Safe: state and set_aside are checked again under the row's lock, so a task is discarded once, and a task that is
-- retried at the same moment is either discarded before that or not at all. For many ids, `lock_tasks` has locked the
-- rows in the order of their ids.
{{change}}
UPDATE dibs_tasks SET set_aside = 'discarded'
WHERE id {{in: ids}} AND {{unindexed: state}} = 'failed' AND set_aside IS NULL
RETURNING id, 'discarded', 'failed', state, NULL, token, NULL
{{note_change}}

-- name: discard_dead
-- Promise: up to `limit` tasks of the dead letter that match are discarded, the oldest failures first.
-- Parameters: queue, type, error (text in its type and message), tags, each if given; now, by.
-- Words: conditions, limit. Rows: history columns. Index: dibs_tasks_dead. Safe: rows that another discard or retry is changing are skipped.
{{change}}
UPDATE dibs_tasks SET set_aside = 'discarded'
WHERE id {{in_select:
    SELECT id FROM dibs_tasks {{indexed_by: dibs_tasks_dead}}
    WHERE state = 'failed' AND set_aside IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}} {{skip_locked}}}}
RETURNING id, 'discarded', 'failed', state, NULL, token, NULL
{{note_change}}
