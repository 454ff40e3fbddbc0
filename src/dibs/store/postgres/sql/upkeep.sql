-- What the clock does: promote tasks that are due, recover tasks whose lease ran out; checks of the doctor.
-- Locks: the roots of workflow trees in the order of their ids (hold_workflows), then tasks in the order of their ids (in_turn,
-- hold_tasks); a statement that takes what it finds passes over rows that are locked (SKIP LOCKED).

-- name: promote
-- Promise: up to `limit` scheduled tasks that are due are pending. Parameters: limit, now, by. Rows: history columns.
-- Index: dibs_tasks_due. Safe: any number of promoters; rows that another one is moving are skipped.
WITH {{moment}},
due AS MATERIALIZED (
    SELECT id FROM dibs_tasks WHERE state = 'scheduled' AND run_at <= (SELECT now FROM moment)
    ORDER BY run_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'pending', ready_at = moment.now, random_key = {{random_place: task.attempts_left}},
        weighted_key = {{weighted_place: task.attempts_left}}
    FROM due, moment
    WHERE task.id = due.id
    RETURNING task.id AS task_id, 'promoted' AS event, 'scheduled' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: lost_steps
-- Promise: up to `limit` steps whose lease ran out and that end with it: their last attempt is lost, or they were asked to
-- stop. Parameters: limit, now. Rows: (id). Index: dibs_tasks_leases. A look: they are recovered by id, when their
-- workflows are held.
WITH {{moment}}
SELECT id FROM dibs_tasks
WHERE state = 'claimed' AND lease_until <= (SELECT now FROM moment) AND workflow_id IS NOT NULL
  AND (cancel_requested OR (attempts_left <= 1 AND NOT ahead))
ORDER BY lease_until LIMIT {{limit}}

-- name: recover
-- Promise: up to `limit` tasks whose lease ran out are taken back: an attempt is spent, and they are pending again,
-- or failed when it was their last, or cancelled when somebody asked for that. A task that was claimed ahead of its
-- turn is not known to have been started: no attempt is spent, only `dropped` counts it, and the detail says so.
-- Words: which (that_go_on or with_these_ids).
-- Parameters: limit, error (what the dead letter says), now, by. Rows: history columns, queue, type.
-- Index: dibs_tasks_leases. Safe: judged by the lease alone, never by who seems alive, and looked at again under the
-- row's lock, so a renewal or a finish that comes first wins; the old token is dead as soon as the state is no
-- longer 'claimed', and the next claim issues another.
-- `claimed_at` is cleared with such a claim. A task that is pending again has no holder any more; the history takes the
-- worker from the row as it was when it was locked.
WITH {{moment}},
lost AS MATERIALIZED (
    SELECT id, worker_id, ahead FROM dibs_tasks WHERE state = 'claimed' AND lease_until <= (SELECT now FROM moment) {{which}}
    ORDER BY lease_until LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN task.cancel_requested THEN 'cancelled'
                     WHEN task.attempts_left <= 1 AND NOT task.ahead THEN 'failed'
                     ELSE 'pending' END,
        attempts = task.attempts + 1 - task.ahead::integer,
        error = CASE WHEN task.ahead THEN task.error ELSE :error END,
        finished_at = CASE WHEN task.cancel_requested OR (task.attempts_left <= 1 AND NOT task.ahead)
                           THEN moment.now END,
        ready_at = moment.now,
        worker_id = CASE WHEN task.cancel_requested OR (task.attempts_left <= 1 AND NOT task.ahead)
                         THEN task.worker_id END,
        claimed_at = CASE WHEN (task.cancel_requested OR task.attempts_left <= 1) AND NOT task.ahead
                          THEN task.claimed_at END,
        lease_until = NULL,
        ahead = false,
        dropped = task.dropped + task.ahead::integer,
        random_key = {{random_place: task.attempts_left - 1 + task.ahead::integer}},
        weighted_key = {{weighted_place: task.attempts_left - 1 + task.ahead::integer}}
    FROM lost, moment
    WHERE task.id = lost.id
    RETURNING task.id AS task_id, 'recovered' AS event, 'claimed' AS from_state, task.state AS to_state,
        lost.worker_id AS by_worker, task.token AS under_token,
        CASE WHEN lost.ahead THEN '{"started":false}' END AS detail,
        task.queue, task.type
),
{{noted}}
SELECT * FROM changed

-- fragment: with_these_ids
-- Which tasks `recover` takes: these.
AND id = ANY(:ids::bigint[])

-- name: next_due
-- Promise: how long until the clock alone makes something claimable; negative where it could be already.
-- Rows: one, (until the next scheduled task is due, until the next lease runs out, until the next schedule ticks);
-- NULL where there is none. A schedule that is late by more than a minute waits for a worker that can tick it (that
-- knows its time zone, say): upkeep keeps looking after it, but nobody should hurry for it.
-- Indexes: dibs_tasks_due, dibs_tasks_leases, dibs_schedules_due, the first entry of each.
WITH {{moment}}
SELECT
    (SELECT run_at FROM dibs_tasks WHERE state = 'scheduled' ORDER BY run_at LIMIT 1) - now,
    (SELECT lease_until FROM dibs_tasks WHERE state = 'claimed' ORDER BY lease_until LIMIT 1) - now,
    (SELECT next_at FROM dibs_schedules WHERE enabled AND next_at >= now - 60000000 ORDER BY next_at LIMIT 1) - now
FROM moment

-- name: next_due_in
-- Promise: as `next_due`, of these queues only: of their tasks those among the first `reach` of the store, so that
-- other queues' tasks cannot slow it down. NULL where none of those is theirs: then the caller polls.
-- Parameters: queues, now. Words: reach. Rows as in `next_due`. Indexes: dibs_tasks_due, dibs_tasks_leases.
WITH {{moment}}
SELECT
    (SELECT run_at FROM (SELECT run_at, queue FROM dibs_tasks WHERE state = 'scheduled'
                         ORDER BY run_at LIMIT {{reach}}) AS task
     WHERE task.queue = ANY(:queues::text[]) ORDER BY run_at LIMIT 1) - now,
    (SELECT lease_until FROM (SELECT lease_until, queue FROM dibs_tasks WHERE state = 'claimed'
                              ORDER BY lease_until LIMIT {{reach}}) AS task
     WHERE task.queue = ANY(:queues::text[]) ORDER BY lease_until LIMIT 1) - now,
    (SELECT min(next_at) FROM dibs_schedules
     WHERE enabled AND next_at >= now - 60000000 AND queue = ANY(:queues::text[])) - now
FROM moment

-- name: books_states
-- Promise: how many tasks are not in the state where their history ends. Rows: (count). Index: dibs_history_task, for each
-- task; `id + 0` keeps PostgreSQL from walking the whole history backwards instead, once for each task, which it does
-- until it has statistics (34 s for 85,000 entries).
SELECT count(*) FROM dibs_tasks AS task
WHERE state <> coalesce((SELECT to_state FROM dibs_history WHERE task_id = task.id ORDER BY id + 0 DESC LIMIT 1), state)
