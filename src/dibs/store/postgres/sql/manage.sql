-- What people do to tasks: cancel, retry, discard, redrive the dead letter.
-- Locks: the roots of workflow trees in the order of their ids (hold_workflows), then tasks in the order of their ids (in_turn,
-- hold_tasks); a statement that takes what it finds passes over rows that are locked (SKIP LOCKED).

-- name: hold_tasks
-- Promise: how these tasks stand, until the transaction ends. Parameters: ids.
-- Rows: (id, state, queue, workflow_id, cancel_requested). Index: the primary key.
-- Safe: the rows are locked in the order of their ids, as everybody else locks them.
SELECT id, state, queue, workflow_id, cancel_requested FROM dibs_tasks
WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: cancel
-- Promise: a waiting task is cancelled, if it still is in the state that was seen.
-- Parameters: id, from_state, now, by. Rows: history columns; none if it moved.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET state = 'cancelled', cancel_requested = true, finished_at = moment.now
    FROM moment
    WHERE task.id = :id AND {{still: :from_state}} AND (state || '') IN ('scheduled', 'blocked', 'pending')
    RETURNING task.id AS task_id, 'cancelled' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: cancel_tasks
-- Promise: these waiting tasks are cancelled. Parameters: ids, from_state (of all of them), now, by.
-- Rows: history columns. Index: the primary key. Safe: `hold_tasks` has locked the rows.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET state = 'cancelled', cancel_requested = true, finished_at = moment.now
    FROM moment
    WHERE task.id = ANY(:ids::bigint[]) AND {{still: :from_state}}
    RETURNING task.id AS task_id, 'cancelled' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: request_cancel
-- Promise: the worker of a running task learns at its next renewal that it should stop.
-- Parameters: id, from_state, now, by. Rows: history columns; none if it is no longer running.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET cancel_requested = true
    WHERE task.id = :id AND {{still: 'claimed'}} AND {{still: :from_state}} AND NOT task.cancel_requested
    RETURNING task.id AS task_id, 'cancel_requested' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: request_cancels
-- Promise: the workers of these running tasks learn at their next renewal that they should stop.
-- Parameters: ids, from_state, now, by. Rows: history columns; none for those who were told before.
-- Index: the primary key.
-- Safe: `hold_tasks` has locked the rows.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET cancel_requested = true
    WHERE task.id = ANY(:ids::bigint[]) AND {{still: :from_state}} AND NOT task.cancel_requested
    RETURNING task.id AS task_id, 'cancel_requested' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: retry
-- Promise: the task is pending again with all its attempts, if it still is in the state that was seen.
-- The token stays: it grows with the next claim, so whoever held the task before stays fenced off.
-- Parameters: id, from_state, now, by. Rows: history columns; none if it moved.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'pending', attempts = 0, cancel_requested = false, run_at = moment.now, ready_at = moment.now,
        finished_at = NULL, worker_id = NULL, claimed_at = NULL, set_aside = NULL,
        random_key = {{random_place: task.max_attempts}}, weighted_key = {{weighted_place: task.max_attempts}}
    FROM moment
    WHERE task.id = :id AND {{still: :from_state}} AND (state || '') IN ('failed', 'cancelled', 'scheduled')
    RETURNING task.id AS task_id, 'retried' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: retry_tasks
-- Promise: these tasks are pending again with all their attempts; as `retry`, for many in the same state.
-- Parameters: ids, from_state (of all of them), now, by. Rows: history columns. Index: the primary key.
-- Safe: `hold_tasks` has locked the rows.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'pending', attempts = 0, cancel_requested = false, run_at = moment.now, ready_at = moment.now,
        finished_at = NULL, worker_id = NULL, claimed_at = NULL, set_aside = NULL,
        random_key = {{random_place: task.max_attempts}},
        weighted_key = {{weighted_place: task.max_attempts}}
    FROM moment
    WHERE task.id = ANY(:ids::bigint[]) AND {{still: :from_state}}
    RETURNING task.id AS task_id, 'retried' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: restore
-- Promise: those of these failed tasks that were discarded are in the dead letter again, to be retried next.
-- Parameters: ids, now, by. Rows: history columns. Index: the primary key.
-- Safe: the retry that follows clears set_aside as well, so a task that is discarded between the two is not pending and
-- discarded at once.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET set_aside = NULL
    WHERE task.id = ANY(:ids::bigint[]) AND {{still: 'failed'}} AND task.set_aside = 'discarded'
    RETURNING task.id AS task_id, 'restored' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: discard
-- Promise: those of these tasks that are in the dead letter are discarded: they stay failed and leave the dead letter.
-- Parameters: ids, now, by. Rows: history columns. Index: the primary key.
-- Safe: state and set_aside are checked again under the row's lock, so a task is discarded once, and a task that is
-- retried at the same moment is either discarded before that or not at all. Where ids are many, `hold_tasks` has
-- locked the rows in the order of their ids.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET set_aside = 'discarded'
    WHERE task.id = ANY(:ids::bigint[]) AND {{still: 'failed'}} AND task.set_aside IS NULL
    RETURNING task.id AS task_id, 'discarded' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: discard_dead
-- Promise: up to `limit` tasks of the dead letter that match are discarded, the oldest failures first.
-- Parameters: queue, type, error (text in its type and message), each if given; now, by. Words: conditions, limit.
-- Rows: history columns. Index: dibs_tasks_dead. Safe: rows that another discard or retry is changing are skipped.
WITH {{moment}},
dead AS MATERIALIZED (
    SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'failed' AND task.set_aside IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE dibs_tasks AS task SET set_aside = 'discarded'
    FROM dead
    WHERE task.id = dead.id
    RETURNING task.id AS task_id, 'discarded' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: redrive
-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Steps go on with their workflow (see `dead_steps`).
-- Parameters: queue, type, error (text in its type and message), each if given; now, by. Words: conditions, limit.
-- Rows: history columns.
-- Index: dibs_tasks_dead. Safe: rows that another redrive is moving are skipped.
WITH {{moment}},
dead AS MATERIALIZED (
    SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'failed' AND task.set_aside IS NULL
      AND task.workflow_id IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'pending', attempts = 0, cancel_requested = false, run_at = moment.now, ready_at = moment.now,
        finished_at = NULL, worker_id = NULL, claimed_at = NULL,
        random_key = {{random_place: task.max_attempts}}, weighted_key = {{weighted_place: task.max_attempts}}
    FROM dead, moment
    WHERE task.id = dead.id
    RETURNING task.id AS task_id, 'retried' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: dead_steps
-- Promise: up to `limit` steps of the dead letter that match, the oldest first; without those whose failure was
-- ignored, since their workflow has gone on.
-- Parameters: those of `redrive`; queues, if only workflows of these. Rows: (task_id, workflow_id).
-- Index: dibs_steps_failed: the dead letter may be full of tasks that are no steps.
SELECT task.id, step.workflow_id FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE NOT step.passed AND (task.state || '') = 'failed' AND task.set_aside IS NULL {{conditions}}
ORDER BY step.task_id LIMIT {{limit}}
