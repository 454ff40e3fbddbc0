-- Changes of tasks without a claim: change and retry tasks, redrive the dead letter.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: change_tasks
-- Promise: these tasks have these values, if no worker has claimed them and they have not ended. A pending task gets new
-- numbers in the random orders, because its weight may have changed; that does not favour it, because an exponential
-- random number has no memory. A task that moves to another queue is not parked; `park` follows, in case the new queue
-- is paused. A task of a backlog is registered again.
-- Parameters: of each task id, from_state, state, priority, queue, params, type_version, run_at, tags, group_key,
-- backlog, detail; now, by.
-- Rows: history columns; none for a task that does not wait. Index: the primary key.
-- Safe: the values were computed from rows that `lock_to_change` read in this transaction, under the write lock. The
-- condition on the state decides alone: a claim that came first leaves no row to change, and a later one takes the new
-- values.
UPDATE dibs_tasks
SET state = :state, priority = :priority, queue = :queue, params = :params, type_version = :type_version,
    run_at = :run_at, tags = :tags, group_key = :group_key, backlog = :backlog,
    parked = parked AND :state = 'pending' AND queue = :queue AND backlog IS NULL AND :backlog IS NULL,
    ready_at = CASE WHEN state = 'scheduled' AND :state = 'pending' THEN :now ELSE ready_at END,
    random_key = CASE WHEN :state = 'pending' AND {{order_in_use: 'random'}}
        THEN {{position_of: 'random'}} + dibs_exponential() END,
    weighted_key = CASE WHEN :state = 'pending' AND {{order_in_use: 'weighted'}}
        THEN {{position_of: 'weighted'}} + dibs_exponential() / max(:priority + 1, 1) END
WHERE id = :id AND {{unindexed: state}} IN ('scheduled', 'blocked', 'pending')
RETURNING id, 'changed', :from_state, state, NULL, token, :detail

-- name: retry
-- Promise: these tasks are pending again with all their attempts, and do not expire, if they still are in the state
-- that the caller saw.
-- The token stays: it grows with the next claim, so the worker that held the task before stays fenced off.
-- Parameters: ids, from_state (of all of them: failed, cancelled or scheduled), now, by. Rows: history columns; none
-- for a task that moved, then whether the key ended with the task (see `take_back_key`).
-- Index: the primary key. Safe: as `cancel`.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    expires_at = NULL,
    worker_id = NULL, claimed_at = NULL, set_aside = NULL, key_ended = {{key_ended_before}},
    {{fresh_keys}}
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state
RETURNING id, 'retried', :from_state, state, NULL, token, NULL, {{may_take_back}}

-- name: redrive
-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Steps are retried with their workflow (see `dead_steps`).
-- Parameters: queue, type, error (text in its type and message), tags, each if given; now. Words: conditions, limit.
-- Rows: history columns.
-- Index: dibs_tasks_dead.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    expires_at = NULL,
    worker_id = NULL, claimed_at = NULL, key_ended = {{key_ended_before}},
    {{fresh_keys}}
WHERE id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_dead
    WHERE state = 'failed' AND set_aside IS NULL AND workflow_id IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'retried', 'failed', state, NULL, token, NULL, {{may_take_back}}

-- name: dead_steps
-- Promise: up to `limit` steps of the dead letter that match, the oldest first; without steps whose failure was
-- ignored, since their workflow continued without them.
-- Parameters: the same as of `redrive`; queues, if only workflows of these queues count. Rows: (task_id, workflow_id).
-- Index: dibs_steps_failed: most tasks of the dead letter may not be steps.
SELECT id, step.workflow_id FROM dibs_steps AS step INDEXED BY dibs_steps_failed JOIN dibs_tasks ON id = step.task_id
WHERE step.passed = 0 AND +state = 'failed' AND set_aside IS NULL {{conditions}}
ORDER BY step.task_id LIMIT {{limit}}
