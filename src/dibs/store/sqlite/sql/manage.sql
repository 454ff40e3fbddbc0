-- Changes of tasks without a claim: retry tasks, redrive the dead letter.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: retry
-- Promise: these tasks are pending again with all their attempts, if they still are in the state that the caller saw.
-- The token stays: it grows with the next claim, so the worker that held the task before stays fenced off.
-- Parameters: ids, from_state (of all of them: failed, cancelled or scheduled), now, by. Rows: history columns; none
-- for a task that moved. Index: the primary key. Safe: as `cancel`.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL, set_aside = NULL,
    {{fresh_keys}}
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state
RETURNING id, 'retried', :from_state, state, NULL, token, NULL

-- name: redrive
-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Steps are retried with their workflow (see `dead_steps`).
-- Parameters: queue, type, error (text in its type and message), tags, each if given; now. Words: conditions, limit.
-- Rows: history columns.
-- Index: dibs_tasks_dead.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL,
    {{fresh_keys}}
WHERE id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_dead
    WHERE state = 'failed' AND set_aside IS NULL AND workflow_id IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'retried', 'failed', state, NULL, token, NULL

-- name: dead_steps
-- Promise: up to `limit` steps of the dead letter that match, the oldest first; without steps whose failure was
-- ignored, since their workflow continued without them.
-- Parameters: the same as of `redrive`; queues, if only workflows of these queues count. Rows: (task_id, workflow_id).
-- Index: dibs_steps_failed: most tasks of the dead letter may not be steps.
SELECT id, step.workflow_id FROM dibs_steps AS step INDEXED BY dibs_steps_failed JOIN dibs_tasks ON id = step.task_id
WHERE step.passed = 0 AND +state = 'failed' AND set_aside IS NULL {{conditions}}
ORDER BY step.task_id LIMIT {{limit}}
