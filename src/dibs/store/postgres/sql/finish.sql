-- Writes of the holder of a claim: outcomes, renewals, progress, checkpoints.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: complete
-- Promise: each task is completed, if its worker still holds it under its token.
-- Parameters: items (a JSON array of objects with id, token, worker_id, result), now, by.
-- Words: step_condition (`not_a_step` where no workflow is locked, or nothing).
-- Rows: history columns, attempts, run_at, queue, type; none where refused.
-- Safe: the fence is in the one statement that writes, and PostgreSQL checks it again after waiting for the
-- row. A token is issued once, so a stale token matches nothing.
-- Index: dibs_tasks_pkey. The ids are named as a list as well, because the planner expects a hundred rows of any JSON
-- and would rather read a table of ten thousand tasks than look for so many. That scan goes by id too, the order in
-- which every other statement locks tasks (`in_turn`); locking them beforehand would cost a quarter more on the busiest
-- path.
WITH {{moment}},
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items (id bigint, token bigint, worker_id text, result text)
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'completed', attempts = task.attempts + 1, result = items.result, error = NULL,
        finished_at = moment.now, lease_until = NULL, ahead = false
    FROM items, moment
    WHERE task.id = ANY(ARRAY(SELECT id FROM items))
      AND task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id AND {{unindexed: state}} = 'claimed'
      {{step_condition}}
    RETURNING task.id AS task_id, 'completed' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, task.attempts, task.run_at,
        task.queue, task.type
),
{{noted}}
SELECT * FROM changed

-- name: fail
-- Promise: each attempt failed, if its worker still holds the task under its token. The task waits for its next
-- attempt (retry_in, else its `backoff` times jitter), or fails for good when it is
-- permanent or was the last attempt, or is cancelled when its cancellation was requested.
-- Parameters: items (a JSON array of objects with id, token, worker_id, error, retry_in, permanent, jitter), now, by.
-- Rows as in `complete`. A task that goes back has no holder; the history takes the worker from the parameters.
-- Safe: as `complete`.
WITH {{moment}},
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items
        (id bigint, token bigint, worker_id text, error text, retry_in bigint, permanent boolean, jitter float8)
),
{{in_turn}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN task.cancel_requested THEN 'cancelled'
                     WHEN items.permanent OR task.attempts_left <= 1 THEN 'failed'
                     WHEN items.retry_in = 0 THEN 'pending'
                     ELSE 'scheduled' END,
        attempts = task.attempts + 1,
        error = items.error,
        finished_at = CASE WHEN task.cancel_requested OR items.permanent OR task.attempts_left <= 1
                           THEN moment.now END,
        run_at = moment.now + coalesce(items.retry_in, CAST({{backoff}} * items.jitter AS bigint)),
        ready_at = moment.now,
        expires_at = NULL,
        worker_id = CASE WHEN task.cancel_requested OR items.permanent OR task.attempts_left <= 1
                         THEN task.worker_id END,
        claimed_at = CASE WHEN task.cancel_requested OR items.permanent OR task.attempts_left <= 1
                          THEN task.claimed_at END,
        lease_until = NULL,
        ahead = false,
        random_key = {{random_place}},
        weighted_key = {{weighted_place}}
    FROM items, in_turn, moment
    WHERE task.id = in_turn.id AND task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id
      AND {{unindexed: state}} = 'claimed'
    RETURNING task.id AS task_id, CASE task.state WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END AS event,
        'claimed' AS from_state, task.state AS to_state, items.worker_id AS by_worker, task.token AS under_token, task.error AS detail,
        task.attempts, task.run_at, task.queue, task.type
),
{{noted}}
SELECT * FROM changed

-- name: release
-- Promise: each task goes back without an attempt spent, if its worker still holds it under its token; pending at
-- once or scheduled after `delay`, cancelled when its cancellation was requested. A task that was claimed ahead and is
-- not known to be started can still expire.
-- Parameters: items (a JSON array of objects with id, token, worker_id, delay), now, by.
-- Rows as in `complete`; the detail says that it was a release. A task that goes back has no holder; the
-- history takes the worker from the parameters. Safe: as `complete`.
WITH {{moment}},
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items (id bigint, token bigint, worker_id text, delay bigint)
),
{{in_turn}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN task.cancel_requested THEN 'cancelled' WHEN items.delay > 0 THEN 'scheduled'
                     ELSE 'pending' END,
        finished_at = CASE WHEN task.cancel_requested THEN moment.now END,
        run_at = moment.now + items.delay,
        ready_at = moment.now,
        expires_at = CASE WHEN task.ahead THEN task.expires_at END,
        worker_id = CASE WHEN task.cancel_requested THEN task.worker_id END,
        claimed_at = CASE WHEN task.cancel_requested THEN task.claimed_at END,
        lease_until = NULL,
        ahead = false,
        random_key = {{random_place}},
        weighted_key = {{weighted_place}}
    FROM items, in_turn, moment
    WHERE task.id = in_turn.id AND task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id
      AND {{unindexed: state}} = 'claimed'
    RETURNING task.id AS task_id, CASE task.state WHEN 'cancelled' THEN 'cancelled' ELSE 'released' END AS event,
        'claimed' AS from_state, task.state AS to_state, items.worker_id AS by_worker, task.token AS under_token,
        CASE task.state WHEN 'cancelled' THEN '{"outcome":"released"}' END AS detail,
        task.attempts, task.run_at, task.queue, task.type
),
{{noted}}
SELECT * FROM changed

-- name: stop
-- Promise: each running task is cancelled by its own worker, if it still holds it under its token.
-- Parameters: items (a JSON array of objects with id, token, worker_id), now, by.
-- Rows as in `complete`. Safe: as `complete`.
WITH {{moment}},
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items (id bigint, token bigint, worker_id text)
),
{{in_turn}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'cancelled', attempts = task.attempts + 1, finished_at = moment.now, lease_until = NULL,
        ahead = false
    FROM items, in_turn, moment
    WHERE task.id = in_turn.id AND task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id
      AND {{unindexed: state}} = 'claimed'
    RETURNING task.id AS task_id, 'cancelled' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, task.attempts, task.run_at,
        task.queue, task.type
),
{{noted}}
SELECT * FROM changed

-- name: claim_outcomes
-- Promise: how the claims with these tokens ended, for a worker that repeats a request because the answer was lost.
-- Parameters: items (a JSON array of objects with id, token).
-- Rows: (task_id, token, event, to_state, worker_id, detail). Index: dibs_history_task.
SELECT past.task_id, past.token, past.event, past.to_state, past.worker_id, past.detail
FROM json_to_recordset(:items::json) AS asked (id bigint, token bigint)
JOIN dibs_history AS past ON past.task_id = asked.id AND past.token = asked.token
WHERE past.event IN ('completed', 'failed', 'released', 'cancelled')
ORDER BY past.id

-- name: start
-- Promise: each task starts now and is charged if its worker is lost, if that worker still holds the task under its
-- token and the task has not expired before.
-- Parameters: items (a JSON array of objects with id, token, worker_id), now.
-- Rows: (id, token, worker_id); none where refused. Safe: as `complete`.
--
-- A worker reports the start, before it runs the task, only where `dropped` is not 0, or where the task expires: it
-- does not start a task after its expiry, which the database's clock decides. When a batch is lost with its
-- worker, the store does not know which task was running, so the first loss charges none of them; from then on their
-- starts are recorded one by one, so that a task that kills its worker is charged, and its neighbours are not.
-- Recording every start would cost a durable write for each task that never harms a worker.
WITH {{moment}},
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items (id bigint, token bigint, worker_id text)
),
{{in_turn}}
UPDATE dibs_tasks AS task SET ahead = false
FROM items, in_turn, moment
WHERE task.id = in_turn.id AND task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id
  AND {{unindexed: state}} = 'claimed' AND NOT coalesce(task.ahead AND task.expires_at <= moment.now, false)
RETURNING task.id, task.token, task.worker_id

-- name: renew
-- Promise: each lease ends `lease` from now, if its worker still holds the task under its token.
-- Parameters: items (a JSON array of objects with id, token, worker_id, lease), now.
-- Rows: (id, token, worker_id, lease_until, cancel_requested); none if refused.
-- Safe: as `complete`; a claim that was recovered has another state or token, so it cannot be renewed back.
WITH {{moment}},
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items (id bigint, token bigint, worker_id text, lease bigint)
),
{{in_turn}}
UPDATE dibs_tasks AS task SET lease_until = moment.now + items.lease
FROM items, in_turn, moment
WHERE task.id = in_turn.id AND task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id
  AND {{unindexed: state}} = 'claimed'
RETURNING task.id, task.token, task.worker_id, task.lease_until, task.cancel_requested

-- name: progress
-- Promise: the progress of each task is stored, if its worker still holds the task under its token.
-- Parameters: items (a JSON array of objects with id, token, worker_id, progress, progress_message); no claim twice.
-- Rows: (id, token, worker_id, cancel_requested); none where refused. Safe: as `complete`.
WITH items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items
        (id bigint, token bigint, worker_id text, progress integer, progress_message text)
),
{{in_turn}}
UPDATE dibs_tasks AS task SET progress = items.progress, progress_message = items.progress_message
FROM items, in_turn
WHERE task.id = in_turn.id AND task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id
  AND {{unindexed: state}} = 'claimed'
RETURNING task.id, task.token, task.worker_id, task.cancel_requested

-- name: keep_checkpoint
-- Promise: the value is kept under this name, if this worker still holds the task under this token and nothing is kept
-- there yet. Parameters: id, token, worker_id, name, value, now. Rows: (value); none if refused, or if there is one.
-- Safe: the fence is read under the task's lock, so the claim cannot be lost between the check and the commit.
WITH {{moment}},
held AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE id = :id AND token = :token AND worker_id = :worker_id AND {{unindexed: state}} = 'claimed'
    FOR SHARE
)
INSERT INTO dibs_checkpoints (task_id, name, value, token, at)
SELECT held.id, :name, :value, :token, moment.now FROM held, moment
ON CONFLICT (task_id, name) DO NOTHING
RETURNING value

-- fragment: in_turn
-- The tasks of `items`, locked in the order of their ids whatever plan finds them: two statements about the same tasks
-- wait for each other in one direction, never in a circle. Words: step_condition, as in `complete`.
in_turn AS MATERIALIZED (
    SELECT task.id FROM dibs_tasks AS task
    WHERE task.id = ANY(ARRAY(SELECT id FROM items)) {{step_condition}} ORDER BY task.id FOR NO KEY UPDATE
)
