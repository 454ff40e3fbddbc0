-- Upkeep: promote tasks that are due, recover tasks whose lease ran out; checks of the doctor.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

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
    SET state = 'pending', ready_at = moment.now, random_key = {{random_place}},
        weighted_key = {{weighted_place}}
    FROM due, moment
    WHERE task.id = due.id
    RETURNING task.id AS task_id, 'promoted' AS event, 'scheduled' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: recover
-- Promise: up to `limit` tasks whose lease ran out are taken back: an attempt is spent, and they are pending again, or
-- failed when it was their last, or cancelled when its cancellation was requested. A task that was claimed ahead of its
-- turn is not known to have been started: no attempt is spent, only `dropped` counts it, and the detail of the history
-- records it.
-- Words: which (except_ending_steps or with_these_ids).
-- Parameters: limit, error (the error that the dead letter shows), now, by. Rows: history columns, queue, type.
-- Index: dibs_tasks_leases. Safe: the lease alone decides, not the heartbeat of the worker, and it is checked again
-- under the row's lock, so a renewal or a finish that comes first wins; the old token is void as soon as the state is
-- no longer 'claimed', and the next claim issues another. `claimed_at` is cleared with such a claim. A task that is
-- pending again has no holder; the history takes the worker from the row as it was when it was locked.
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
        expires_at = CASE WHEN task.ahead THEN task.expires_at END,
        worker_id = CASE WHEN task.cancel_requested OR (task.attempts_left <= 1 AND NOT task.ahead)
                         THEN task.worker_id END,
        claimed_at = CASE WHEN (task.cancel_requested OR task.attempts_left <= 1) AND NOT task.ahead
                          THEN task.claimed_at END,
        lease_until = NULL,
        ahead = false,
        dropped = task.dropped + task.ahead::integer,
        random_key = {{random_place}},
        weighted_key = {{weighted_place}}
    FROM lost, moment
    WHERE task.id = lost.id
    RETURNING task.id AS task_id, 'recovered' AS event, 'claimed' AS from_state, task.state AS to_state,
        lost.worker_id AS by_worker, task.token AS under_token,
        CASE WHEN lost.ahead THEN '{"started":false}' END AS detail,
        task.queue, task.type
),
{{noted}}
SELECT * FROM changed
