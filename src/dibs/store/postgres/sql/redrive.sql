-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Steps go on with their workflow (see dead_steps.sql).
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
