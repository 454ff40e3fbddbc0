-- Promise: up to `limit` tasks whose lease ran out are taken back: an attempt is spent, and they are pending again,
-- or failed when it was their last, or cancelled when somebody asked for that.
-- Parameters: limit, error (what the dead letter says), now, by. Rows: history columns.
-- Index: dibs_tasks_leases. Safe: judged by the lease alone, never by who seems alive, and looked at again under the
-- row's lock, so a renewal or a finish that comes first wins; the old token is dead as soon as the state is no
-- longer 'claimed', and the next claim issues another.
WITH {{moment}},
lost AS MATERIALIZED (
    SELECT id FROM dibs_tasks WHERE state = 'claimed' AND lease_until <= (SELECT now FROM moment)
    ORDER BY lease_until LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN task.cancel_requested THEN 'cancelled' WHEN task.attempts_left <= 1 THEN 'failed'
                     ELSE 'pending' END,
        attempts = task.attempts + 1,
        error = %(error)s,
        finished_at = CASE WHEN task.cancel_requested OR task.attempts_left <= 1 THEN moment.now END,
        ready_at = moment.now,
        lease_until = NULL,
        random_key = {{random_place: task.attempts_left - 1}},
        weighted_key = {{weighted_place: task.attempts_left - 1}}
    FROM lost, moment
    WHERE task.id = lost.id
    RETURNING task.id AS task_id, 'recovered' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
