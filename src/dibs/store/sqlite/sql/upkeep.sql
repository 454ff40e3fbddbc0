-- What the clock does: promote tasks that are due, recover tasks whose lease ran out; checks of the doctor.
-- Locks: one transaction writes at a time; it holds the lock of the file from its first statement to its commit.

-- name: promote
-- Promise: up to `limit` scheduled tasks that are due are pending. Parameters: limit, now. Rows: history columns.
-- Index: dibs_tasks_due. Safe: any number of promoters, each moves rows that still are scheduled.
UPDATE dibs_tasks
SET state = 'pending', ready_at = :now, {{fresh_keys: dibs_tasks.attempts_left}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_due
             WHERE state = 'scheduled' AND run_at <= :now ORDER BY run_at LIMIT {{limit}})
RETURNING id, 'promoted', 'scheduled', state, NULL, token, NULL

-- name: lost_steps
-- Promise: up to `limit` steps whose lease ran out and that end with it: their last attempt is lost, or they were asked to
-- stop. Parameters: limit, now. Rows: (id). Index: dibs_tasks_leases. A look: they are recovered by id, when their
-- workflows are held.
SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_leases
WHERE state = 'claimed' AND lease_until <= :now AND workflow_id IS NOT NULL
  AND (cancel_requested OR (attempts_left <= 1 AND NOT ahead))
ORDER BY lease_until LIMIT {{limit}}

-- name: recover
-- Promise: up to `limit` tasks whose lease ran out are taken back: an attempt is spent, and they are pending again,
-- or failed when it was their last, or cancelled when somebody asked for that. A task that was claimed ahead of its
-- turn is not known to have been started: no attempt is spent, only `dropped` counts it, and the detail says so.
-- Words: which (that_go_on or with_these_ids).
-- Parameters: limit, error (what the dead letter says), now. Rows: history columns, queue, type.
-- Index: dibs_tasks_leases. Safe: judged by the lease alone, never by who seems alive; the old token is dead as
-- soon as the state is no longer 'claimed', and the next claim issues another.
-- `claimed_at` is emptied with such a claim, as if it had not been; that also tells RETURNING, which sees the row as it
-- is now, which of the two it was. For the same reason the holder is still there; `leave_tasks`, which follows, clears
-- the holder of those that are pending.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN attempts_left <= 1 AND NOT ahead THEN 'failed'
                 ELSE 'pending' END,
    attempts = attempts + 1 - ahead,
    error = CASE WHEN ahead THEN error ELSE :error END,
    finished_at = CASE WHEN cancel_requested OR (attempts_left <= 1 AND NOT ahead) THEN :now END,
    ready_at = :now,
    claimed_at = CASE WHEN NOT ahead THEN claimed_at END,
    lease_until = NULL,
    ahead = 0,
    dropped = dropped + ahead,
    {{fresh_keys: dibs_tasks.attempts_left - 1 + dibs_tasks.ahead}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_leases
             WHERE state = 'claimed' AND lease_until <= :now {{which}}
             ORDER BY lease_until LIMIT {{limit}})
RETURNING id, 'recovered', 'claimed', state, worker_id, token,
    CASE WHEN claimed_at IS NULL THEN '{"started":false}' END, queue, type

-- fragment: with_these_ids
-- Which tasks `recover` takes: these.
AND id IN (SELECT value FROM json_each(:ids))

-- name: leave_tasks
-- Promise: these tasks, which were just recovered and are pending, have no holder any more. Parameters: ids. Rows: none.
-- Index: the primary key. Safe: the transaction that recovered them still holds the write lock.
UPDATE dibs_tasks SET worker_id = NULL, claimed_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'pending'

-- name: next_due
-- Promise: how long until the clock alone makes something claimable; negative where it could be already.
-- Rows: one, (until the next scheduled task is due, until the next lease runs out, until the next schedule ticks);
-- NULL where there is none. A schedule that is late by more than a minute waits for a worker that can tick it (that
-- knows its time zone, say): upkeep keeps looking after it, but nobody should hurry for it.
-- Indexes: dibs_tasks_due, dibs_tasks_leases, dibs_schedules_due, the first entry of each.
SELECT
    (SELECT min(run_at) FROM dibs_tasks INDEXED BY dibs_tasks_due WHERE state = 'scheduled') - :now,
    (SELECT min(lease_until) FROM dibs_tasks INDEXED BY dibs_tasks_leases WHERE state = 'claimed') - :now,
    (SELECT min(next_at) FROM dibs_schedules INDEXED BY dibs_schedules_due
     WHERE enabled AND next_at >= :now - 60000000) - :now

-- name: next_due_in
-- Promise: as `next_due`, of these queues only: of their tasks those among the first `reach` of the store, so that
-- other queues' tasks cannot slow it down. NULL where none of those is theirs: then the caller polls.
-- Parameters: queues, now. Words: reach. Rows as in `next_due`. Indexes: dibs_tasks_due, dibs_tasks_leases.
SELECT
    (SELECT min(run_at) FROM (SELECT run_at, queue FROM dibs_tasks INDEXED BY dibs_tasks_due WHERE state = 'scheduled'
                              ORDER BY run_at LIMIT {{reach}})
     WHERE queue IN (SELECT value FROM json_each(:queues))) - :now,
    (SELECT min(lease_until) FROM (SELECT lease_until, queue FROM dibs_tasks INDEXED BY dibs_tasks_leases
                                   WHERE state = 'claimed' ORDER BY lease_until LIMIT {{reach}})
     WHERE queue IN (SELECT value FROM json_each(:queues))) - :now,
    (SELECT min(next_at) FROM dibs_schedules
     WHERE enabled AND next_at >= :now - 60000000 AND queue IN (SELECT value FROM json_each(:queues))) - :now

-- name: books_states
-- Promise: how many tasks are not in the state where their history ends. Rows: (count).
SELECT count(*) FROM dibs_tasks AS task
WHERE state <> coalesce((SELECT to_state FROM dibs_history WHERE task_id = task.id ORDER BY id DESC LIMIT 1), state)
