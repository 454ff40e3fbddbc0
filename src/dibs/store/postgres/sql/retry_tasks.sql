-- Promise: these tasks are pending again with all their attempts; as retry.sql, for many in the same state.
-- Parameters: ids, from_state (of all of them), now, by. Rows: history columns. Index: the primary key.
-- Safe: hold_tasks.sql has locked the rows.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'pending', attempts = 0, cancel_requested = false, run_at = moment.now, ready_at = moment.now,
        finished_at = NULL, worker_id = NULL, claimed_at = NULL, set_aside = NULL,
        random_key = {{random_place: task.max_attempts}},
        weighted_key = {{weighted_place: task.max_attempts}}
    FROM moment
    WHERE task.id = ANY(%(ids)s::bigint[]) AND {{still: %(from_state)s}}
    RETURNING task.id AS task_id, 'retried' AS event, %(from_state)s::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
