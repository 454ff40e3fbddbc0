-- Changes of tasks without a claim: change and retry tasks, redrive the dead letter.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: change_tasks
-- Promise: these tasks have these values, if no worker has claimed them and they have not ended. A pending task gets new
-- numbers in the random orders, because its weight may have changed; that does not favour it, because an exponential
-- random number has no memory. A task that moves to another queue is not parked; `park` follows, in case the new queue
-- is paused. A task of a backlog is registered again.
-- Parameters: of each task id, from_state, state, priority, queue, params, type_version, run_at, tags, group_key,
-- backlog, detail; now, by.
-- Rows: history columns; none for a task that does not wait. Index: the primary key.
-- Safe: `lock_to_change` has locked the rows in this transaction and read the values from which these were computed. The
-- condition on the state decides alone: a claim that committed first leaves no row to change, and a claim that comes
-- later waits for the lock or skips the task, and then takes the new values.
WITH {{moment}},
given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json)
        AS task (id bigint, from_state text, state text, priority int, queue text, params text, type_version int,
                 run_at bigint, tags text, group_key text, backlog text, detail text)
),
changed AS (
    UPDATE dibs_tasks AS waiting
    SET state = task.state, priority = task.priority, queue = task.queue, params = task.params,
        type_version = task.type_version, run_at = task.run_at, tags = task.tags,
        group_key = task.group_key, backlog = task.backlog,
        parked = waiting.parked AND task.state = 'pending' AND task.queue = waiting.queue
            AND waiting.backlog IS NULL AND task.backlog IS NULL,
        ready_at = CASE WHEN waiting.state = 'scheduled' AND task.state = 'pending' THEN moment.now
                        ELSE waiting.ready_at END,
        random_key = CASE WHEN task.state = 'pending' THEN {{random_place}} END,
        weighted_key = CASE WHEN task.state = 'pending' THEN {{weighted_place}} END
    FROM given AS task, moment
    WHERE waiting.id = task.id AND {{unindexed: waiting.state}} IN ('scheduled', 'blocked', 'pending')
    RETURNING waiting.id AS task_id, 'changed' AS event, task.from_state AS from_state, waiting.state AS to_state,
        NULL::text AS by_worker, waiting.token AS under_token, task.detail AS detail
),
{{noted}}
SELECT * FROM changed

-- name: retry
-- Promise: these tasks are pending again with all their attempts, and do not expire, if they still are in the state
-- that the caller saw.
-- The token stays: it grows with the next claim, so the worker that held the task before stays fenced off.
-- Parameters: ids, from_state (of all of them: failed, cancelled or scheduled), now, by. Rows: history columns; none
-- for a task that moved, then whether the key ended with the task (see `take_back_key`).
-- Index: the primary key. Safe: as `cancel`.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'pending', attempts = 0, cancel_requested = false, run_at = moment.now, ready_at = moment.now,
        expires_at = NULL,
        finished_at = NULL, worker_id = NULL, claimed_at = NULL, set_aside = NULL, key_ended = {{key_ended_before}},
        random_key = {{random_place}},
        weighted_key = {{weighted_place}}
    FROM moment
    WHERE task.id = ANY(:ids::bigint[]) AND {{unindexed: state}} = :from_state
    RETURNING task.id AS task_id, 'retried' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail, {{may_take_back}}
),
{{noted}}
SELECT * FROM changed

-- name: redrive
-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Steps are retried with their workflow (see `dead_steps`).
-- Parameters: queue, type, error (text in its type and message), tags, each if given; now, by.
-- Words: conditions, limit. Rows: history columns.
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
        expires_at = NULL,
        finished_at = NULL, worker_id = NULL, claimed_at = NULL, key_ended = {{key_ended_before}},
        random_key = {{random_place}}, weighted_key = {{weighted_place}}
    FROM dead, moment
    WHERE task.id = dead.id
    RETURNING task.id AS task_id, 'retried' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail, {{may_take_back}}
),
{{noted}}
SELECT * FROM changed

-- name: dead_steps
-- Promise: up to `limit` steps of the dead letter that match, the oldest first; without steps whose failure was
-- ignored, since their workflow continued without them.
-- Parameters: the same as of `redrive`; queues, if only workflows of these queues count. Rows: (task_id, workflow_id).
-- Index: dibs_steps_failed: most tasks of the dead letter may not be steps.
SELECT task.id, step.workflow_id FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE NOT step.passed AND {{unindexed: task.state}} = 'failed' AND task.set_aside IS NULL {{conditions}}
ORDER BY step.task_id LIMIT {{limit}}
