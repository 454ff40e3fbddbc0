-- Upkeep: promote tasks that are due, recover tasks whose lease ran out; checks of the doctor.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: clock
-- Promise: the database's time. Parameters: now. Rows: (now), microseconds.
{{with_moment}}
SELECT {{now}}

-- name: lost_steps
-- Promise: up to `limit` steps whose lease ran out and that end with it, because their last attempt is lost or their
-- cancellation was requested. Parameters: limit, now. Rows: (id). Index: dibs_tasks_leases.
-- Safe: a read. The steps are recovered by id, after their workflows are locked.
{{with_moment}}
SELECT id FROM dibs_tasks {{indexed_by: dibs_tasks_leases}}
WHERE state = 'claimed' AND lease_until <= {{now}} AND workflow_id IS NOT NULL
  AND (cancel_requested OR (attempts_left <= 1 AND NOT ahead))
ORDER BY lease_until LIMIT {{limit}}

-- fragment: except_ending_steps
-- Which tasks `recover` takes: all but steps that would end with it, which their workflow must learn of in the same
-- transaction (see `lost_steps`).
AND (workflow_id IS NULL OR NOT (cancel_requested OR (attempts_left <= 1 AND NOT ahead)))

-- fragment: with_these_ids
-- A condition: the task is one of the parameter `ids`.
AND id {{in: ids}}

-- fragment: may_expire
-- A condition: the task waits and has an expiry. The partial index dibs_tasks_expiring has it.
expires_at IS NOT NULL AND lease_until IS NULL AND finished_at IS NULL

-- name: expired
-- Promise: up to `limit` waiting tasks that were not started by their expiry, the longest expired first. Words: limit.
-- Parameters: now. Rows: (id, state, workflow_id). Index: dibs_tasks_expiring. No condition names a state: the planner
-- would expect few rows, and read and sort all that have expired.
-- Safe: a read. The tasks are expired by id, after the workflows of the steps among them are locked.
{{with_moment}}
SELECT id, state, workflow_id FROM dibs_tasks {{indexed_by: dibs_tasks_expiring}}
WHERE {{may_expire}} AND expires_at <= {{now}} ORDER BY expires_at LIMIT {{limit}}

-- name: expire
-- Promise: these tasks are cancelled, if they still wait in the state that the caller saw and have expired.
-- Parameters: ids, from_state (pending, scheduled or blocked), error (the error that says so), now, by.
-- Rows: history columns, queue, type. Index: the primary key.
-- Safe: any number of processes; rows that another transaction has locked, most likely because they are being claimed,
-- are skipped, and a task that was claimed is no longer in the state. A claim and this statement never both take a task:
-- the claim takes it before its expiry, by the database's clock, and leaves the state. A retry removes the expiry.
{{change}}
UPDATE dibs_tasks SET state = 'cancelled', error = :error, finished_at = {{now}}, parked = false
WHERE id {{in_select:
    SELECT id FROM dibs_tasks
    WHERE id {{in: ids}} AND {{unindexed: state}} = :from_state AND coalesce(expires_at <= {{now}}, false)
    {{skip_locked}}}}
RETURNING id, 'expired', CAST(:from_state AS text), state, NULL, token, NULL, queue, type
{{note_change}}

-- name: end_random_orders
-- Promise: the random orders that no claim has used for `unused` microseconds have ended. Parameters: unused, now.
-- Rows: (kind).
-- Safe: a claim that uses the order at the same moment finds the order ended, and begins it again (see `number_some`).
{{with_moment}}
UPDATE dibs_random_orders SET ended = true WHERE NOT ended AND used_at <= {{now}} - :unused
RETURNING kind

-- name: next_due
-- Promise: how long until the clock alone makes a task claimable; negative where one could be claimable already.
-- Parameters: now. Rows: one, (until the next scheduled task is due, until the next lease runs out, until the next
-- schedule ticks (not one whose tick waits for the end of a task: the next round of upkeep finds that end), until a rate allows a start for which tasks wait); NULL where there is none. A schedule that is late by more than a minute waits for a worker that can
-- tick it (one that knows its time zone, for example): every round of upkeep tries it again, and no
-- client has to wait for it.
-- Indexes: dibs_tasks_due, dibs_tasks_leases, dibs_schedules_due, the first entry of each.
{{with_moment}}
SELECT
    (SELECT min(run_at) FROM dibs_tasks {{indexed_by: dibs_tasks_due}} WHERE state = 'scheduled') - {{now}},
    (SELECT min(lease_until) FROM dibs_tasks {{indexed_by: dibs_tasks_leases}} WHERE state = 'claimed') - {{now}},
    (SELECT min(due_at) FROM dibs_schedules {{indexed_by: dibs_schedules_due}}
     WHERE enabled AND due_at >= {{now}} - 60000000 AND NOT {{waits}}) - {{now}},
    (SELECT min(opens_at) FROM dibs_counters {{indexed_by: dibs_counters_opening}} WHERE opens_at IS NOT NULL) - {{now}}

-- name: next_due_in
-- Promise: as `next_due`, of these queues only: only tasks among the first `reach` of the store count, so that tasks of
-- other queues cannot slow the statement down. NULL where none of these is in the queues: then the caller polls.
-- Parameters: queues, now. Words: reach. Rows as in `next_due`. Indexes: dibs_tasks_due, dibs_tasks_leases.
{{with_moment}}
SELECT
    (SELECT min(run_at) FROM (SELECT run_at, queue FROM dibs_tasks {{indexed_by: dibs_tasks_due}}
                              WHERE state = 'scheduled' ORDER BY run_at LIMIT {{reach}}) AS task
     WHERE queue {{in_text: queues}}) - {{now}},
    (SELECT min(lease_until) FROM (SELECT lease_until, queue FROM dibs_tasks {{indexed_by: dibs_tasks_leases}}
                                   WHERE state = 'claimed' ORDER BY lease_until LIMIT {{reach}}) AS task
     WHERE queue {{in_text: queues}}) - {{now}},
    (SELECT min(due_at) FROM dibs_schedules
     WHERE enabled AND due_at >= {{now}} - 60000000 AND queue {{in_text: queues}} AND NOT {{waits}}) - {{now}},
    (SELECT min(opens_at) FROM dibs_counters {{indexed_by: dibs_counters_opening}} WHERE opens_at IS NOT NULL) - {{now}}

-- name: books_states
-- Promise: how many tasks are not in the state where their history ends. Rows: (count). Index: dibs_history_task, for
-- each task; `id + 0` keeps PostgreSQL from walking the whole history backwards instead, once for each task, which it
-- does until it has statistics (34 s for 85,000 entries).
SELECT count(*) FROM dibs_tasks AS task
WHERE state <> coalesce((SELECT to_state FROM dibs_history WHERE task_id = task.id ORDER BY id + 0 DESC LIMIT 1), state)

-- name: books_tokens
-- Promise: how many tasks have a token that is not the highest one their history issued. Rows: (count).
SELECT count(*) FROM dibs_tasks AS task
WHERE token <> coalesce((SELECT max(token) FROM dibs_history WHERE task_id = task.id), token)
