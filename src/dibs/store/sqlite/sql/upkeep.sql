-- Upkeep: promote tasks that are due, recover tasks whose lease ran out; checks of the doctor.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: promote
-- Promise: up to `limit` scheduled tasks that are due are pending. Parameters: limit, now. Rows: history columns.
-- Index: dibs_tasks_due. Safe: any number of promoters, each moves rows that still are scheduled.
UPDATE dibs_tasks
SET state = 'pending', ready_at = :now, {{fresh_keys}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_due
             WHERE state = 'scheduled' AND run_at <= :now ORDER BY run_at LIMIT {{limit}})
RETURNING id, 'promoted', 'scheduled', state, NULL, token, NULL

-- name: recover
-- Promise: up to `limit` tasks whose lease ran out are taken back: an attempt is spent, and they are pending again, or
-- failed when it was their last, or cancelled when its cancellation was requested. A task that was claimed ahead of its
-- turn is not known to have been started: no attempt is spent, only `dropped` counts it, and the detail of the history
-- records it.
-- Words: which (except_ending_steps or with_these_ids).
-- Parameters: limit, error (the error that the dead letter shows), now. Rows: history columns, queue, type.
-- Index: dibs_tasks_leases. Safe: the lease alone decides, not the heartbeat of the worker; the old token is void as
-- soon as the state is no longer 'claimed', and the next claim issues another. `claimed_at` is cleared for
-- a task that was not started, as if it had not been claimed. RETURNING sees the changed row, and distinguishes the two
-- cases by it. For the same reason the row keeps its holder; `leave_tasks`, which follows, clears the holder of pending
-- tasks.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN attempts_left <= 1 AND NOT ahead THEN 'failed'
                 ELSE 'pending' END,
    attempts = attempts + 1 - ahead,
    error = CASE WHEN ahead THEN error ELSE :error END,
    finished_at = CASE WHEN cancel_requested OR (attempts_left <= 1 AND NOT ahead) THEN :now END,
    ready_at = :now,
    expires_at = CASE WHEN ahead THEN expires_at END,
    claimed_at = CASE WHEN NOT ahead THEN claimed_at END,
    lease_until = NULL,
    ahead = 0,
    dropped = dropped + ahead,
    {{fresh_keys}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_leases
             WHERE state = 'claimed' AND lease_until <= :now {{which}}
             ORDER BY lease_until LIMIT {{limit}})
RETURNING id, 'recovered', 'claimed', state, worker_id, token,
    CASE WHEN claimed_at IS NULL THEN '{"started":false}' END, queue, type

-- name: leave_tasks
-- Promise: these tasks, which were just recovered and are pending, have no holder. Parameters: ids. Rows: none.
-- Index: the primary key. Safe: the transaction that recovered them still holds the write lock.
UPDATE dibs_tasks SET worker_id = NULL, claimed_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'pending'
