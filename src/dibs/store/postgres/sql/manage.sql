-- Changes of tasks without a claim: retry tasks, redrive the dead letter.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: retry
-- Promise: these tasks are pending again with all their attempts, if they still are in the state that the caller saw.
-- The token stays: it grows with the next claim, so the worker that held the task before stays fenced off.
-- Parameters: ids, from_state (of all of them: failed, cancelled or scheduled), now, by. Rows: history columns; none
-- for a task that moved. Index: the primary key. Safe: as `cancel`.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'pending', attempts = 0, cancel_requested = false, run_at = moment.now, ready_at = moment.now,
        finished_at = NULL, worker_id = NULL, claimed_at = NULL, set_aside = NULL,
        random_key = {{random_place}},
        weighted_key = {{weighted_place}}
    FROM moment
    WHERE task.id = ANY(:ids::bigint[]) AND {{unindexed: state}} = :from_state
    RETURNING task.id AS task_id, 'retried' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
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
        finished_at = NULL, worker_id = NULL, claimed_at = NULL,
        random_key = {{random_place}}, weighted_key = {{weighted_place}}
    FROM dead, moment
    WHERE task.id = dead.id
    RETURNING task.id AS task_id, 'retried' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
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
