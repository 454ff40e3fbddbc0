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
