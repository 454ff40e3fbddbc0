-- Promise: each task is completed, if its worker still holds it under its token.
-- Parameters: said (a JSON array of objects with id, token, worker_id, result), now, by.
-- Words: whose (plain for tasks that are no steps, whose workflow nobody holds).
-- Rows: history columns, attempts, run_at, queue, type; none where refused.
-- Safe: the fence is in the one statement that writes, and PostgreSQL looks at it again when it had to wait for the
-- row. A token is issued once, so a stale one matches nothing.
-- Index: dibs_tasks_pkey. The ids are named as a list as well, because the planner expects a hundred rows of any JSON and
-- would rather read a table of ten thousand tasks than look for so many. That scan goes by id too, the order in which
-- everybody else locks (in_turn.sql); to lock them beforehand, as they do, would cost a quarter more on the busiest path.
WITH {{moment}},
said AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(said)s::json) AS said (id bigint, token bigint, worker_id text, result text)
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'completed', attempts = task.attempts + 1, result = said.result, error = NULL,
        finished_at = moment.now, lease_until = NULL, ahead = false
    FROM said, moment
    WHERE task.id = ANY(ARRAY(SELECT id FROM said))
      AND task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id AND {{still: 'claimed'}}
      {{whose}}
    RETURNING task.id AS task_id, 'completed' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, task.attempts, task.run_at,
        task.queue, task.type
),
{{noted}}
SELECT * FROM changed
