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
