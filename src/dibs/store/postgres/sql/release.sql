-- Promise: each task goes back without an attempt spent, if its worker still holds it under its token; pending at
-- once or scheduled after `delay`, cancelled when somebody asked for that.
-- Parameters: said (a JSON array of objects with id, token, worker_id, delay), now, by.
-- Rows as in complete.sql; the detail says that it was a release. A task that goes back has no holder any more; the
-- history takes the worker from the parameters. Safe: as complete.sql.
WITH {{moment}},
said AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(said)s::json) AS said (id bigint, token bigint, worker_id text, delay bigint)
),
{{in_turn}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN task.cancel_requested THEN 'cancelled' WHEN said.delay > 0 THEN 'scheduled'
                     ELSE 'pending' END,
        finished_at = CASE WHEN task.cancel_requested THEN moment.now END,
        run_at = moment.now + said.delay,
        ready_at = moment.now,
        worker_id = CASE WHEN task.cancel_requested THEN task.worker_id END,
        claimed_at = CASE WHEN task.cancel_requested THEN task.claimed_at END,
        lease_until = NULL,
        ahead = false,
        random_key = {{random_place: task.attempts_left}},
        weighted_key = {{weighted_place: task.attempts_left}}
    FROM said, in_turn, moment
    WHERE task.id = in_turn.id AND task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id
      AND {{still: 'claimed'}}
    RETURNING task.id AS task_id, CASE task.state WHEN 'cancelled' THEN 'cancelled' ELSE 'released' END AS event,
        'claimed' AS from_state, task.state AS to_state, said.worker_id AS by_worker, task.token AS under_token,
        CASE task.state WHEN 'cancelled' THEN '{"outcome":"released"}' END AS detail,
        task.attempts, task.run_at, task.queue, task.type
),
{{noted}}
SELECT * FROM changed
