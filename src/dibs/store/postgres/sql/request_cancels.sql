-- Promise: the workers of these running tasks learn at their next renewal that they should stop.
-- Parameters: ids, from_state, now, by. Rows: history columns; none for those who were told before.
-- Index: the primary key.
-- Safe: hold_tasks.sql has locked the rows.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET cancel_requested = true
    WHERE task.id = ANY(%(ids)s::bigint[]) AND {{still: %(from_state)s}} AND NOT task.cancel_requested
    RETURNING task.id AS task_id, 'cancel_requested' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
