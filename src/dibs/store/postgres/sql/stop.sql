-- Promise: each running task is cancelled by its own worker, if it still holds it under its token.
-- Parameters: said (a JSON array of objects with id, token, worker_id), now, by.
-- Rows as in complete.sql. Safe: as complete.sql.
WITH {{moment}},
said AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(said)s::json) AS said (id bigint, token bigint, worker_id text)
),
{{in_turn}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'cancelled', attempts = task.attempts + 1, finished_at = moment.now, lease_until = NULL,
        ahead = false
    FROM said, in_turn, moment
    WHERE task.id = in_turn.id AND task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id
      AND {{still: 'claimed'}}
    RETURNING task.id AS task_id, 'cancelled' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, task.attempts, task.run_at,
        task.queue, task.type
),
{{noted}}
SELECT * FROM changed
