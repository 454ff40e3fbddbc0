-- Promise: the worker of a running task learns at its next renewal that it should stop.
-- Parameters: id, from_state, now, by. Rows: history columns; none if it is no longer running.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET cancel_requested = true
    WHERE task.id = %(id)s AND {{still: 'claimed'}} AND {{still: %(from_state)s}} AND NOT task.cancel_requested
    RETURNING task.id AS task_id, 'cancel_requested' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
