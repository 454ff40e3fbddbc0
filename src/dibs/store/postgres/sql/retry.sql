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
    WHERE task.id = %(id)s AND {{still: %(from_state)s}} AND (state || '') IN ('failed', 'cancelled', 'scheduled')
    RETURNING task.id AS task_id, 'retried' AS event, %(from_state)s::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
