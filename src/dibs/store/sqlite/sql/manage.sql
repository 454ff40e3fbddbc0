-- What people do to tasks: cancel, retry, discard, redrive the dead letter.
-- Locks: one transaction writes at a time; it holds the lock of the file from its first statement to its commit.

-- name: cancel
-- Promise: a waiting task is cancelled, if it still is in the state that was seen.
-- Parameters: id, from_state, now. Rows: history columns; none if it moved.
UPDATE dibs_tasks SET state = 'cancelled', cancel_requested = 1, finished_at = :now
WHERE id = :id AND state = :from_state AND state IN ('scheduled', 'blocked', 'pending')
RETURNING id, 'cancelled', :from_state, state, NULL, token, NULL

-- name: request_cancel
-- Promise: the worker of a running task learns at its next renewal that it should stop.
-- Parameters: id, from_state. Rows: history columns; none if it is no longer running.
UPDATE dibs_tasks SET cancel_requested = 1
WHERE id = :id AND state = 'claimed' AND state = :from_state AND NOT cancel_requested
RETURNING id, 'cancel_requested', 'claimed', state, worker_id, token, NULL

-- name: retry
-- Promise: the task is pending again with all its attempts, if it still is in the state that was seen.
-- The token stays: it grows with the next claim, so whoever held the task before stays fenced off.
-- Parameters: id, from_state, now. Rows: history columns; none if it moved.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL, set_aside = NULL,
    {{fresh_keys: dibs_tasks.max_attempts}}
WHERE id = :id AND state = :from_state AND state IN ('failed', 'cancelled', 'scheduled')
RETURNING id, 'retried', :from_state, state, NULL, token, NULL

-- name: retry_tasks
-- Promise: these tasks are pending again with all their attempts; as `retry`, for many in the same state.
-- Parameters: ids, from_state (of all of them), now. Rows: history columns. Index: the primary key.
-- Safe: `hold_tasks` saw them in the same transaction.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL, set_aside = NULL,
    {{fresh_keys: dibs_tasks.max_attempts}}
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state
RETURNING id, 'retried', :from_state, state, NULL, token, NULL

-- name: redrive
-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Steps go on with their workflow (see `dead_steps`).
-- Parameters: queue, type, error (text in its type and message), each if given; now. Words: conditions, limit.
-- Rows: history columns.
-- Index: dibs_tasks_dead.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL,
    {{fresh_keys: dibs_tasks.max_attempts}}
WHERE id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_dead
    WHERE state = 'failed' AND set_aside IS NULL AND workflow_id IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'retried', 'failed', state, NULL, token, NULL

-- name: dead_steps
-- Promise: up to `limit` steps of the dead letter that match, the oldest first; without those whose failure was
-- ignored, since their workflow has gone on.
-- Parameters: those of `redrive`; queues, if only workflows of these. Rows: (task_id, workflow_id).
-- Index: dibs_steps_failed: the dead letter may be full of tasks that are no steps.
SELECT id, step.workflow_id FROM dibs_steps AS step INDEXED BY dibs_steps_failed JOIN dibs_tasks ON id = step.task_id
WHERE step.passed = 0 AND +state = 'failed' AND set_aside IS NULL {{conditions}}
ORDER BY step.task_id LIMIT {{limit}}
