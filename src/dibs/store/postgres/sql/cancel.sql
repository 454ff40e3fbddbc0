-- Promise: a waiting task is cancelled, if it still is in the state that was seen.
-- Parameters: id, from_state, now, by. Rows: history columns; none if it moved.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET state = 'cancelled', cancel_requested = true, finished_at = moment.now
    FROM moment
    WHERE task.id = %(id)s AND {{still: %(from_state)s}} AND (state || '') IN ('scheduled', 'blocked', 'pending')
    RETURNING task.id AS task_id, 'cancelled' AS event, %(from_state)s::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
