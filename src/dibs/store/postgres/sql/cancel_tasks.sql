-- Promise: these waiting tasks are cancelled. Parameters: ids, from_state (of all of them), now, by.
-- Rows: history columns. Index: the primary key. Safe: hold_tasks.sql has locked the rows.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET state = 'cancelled', cancel_requested = true, finished_at = moment.now
    FROM moment
    WHERE task.id = ANY(%(ids)s::bigint[]) AND {{still: %(from_state)s}}
    RETURNING task.id AS task_id, 'cancelled' AS event, %(from_state)s::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
