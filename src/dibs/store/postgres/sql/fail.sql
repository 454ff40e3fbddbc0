-- Promise: each attempt failed, if its worker still holds the task under its token. The task waits for its next
-- attempt (retry_in, else its backoff: base * 2^failures, at most cap, times jitter), or fails for good when it is
-- permanent or was the last attempt, or is cancelled when somebody asked for that.
-- Parameters: said (a JSON array of objects with id, token, worker_id, error, retry_in, permanent, jitter), now, by.
-- Rows as in complete.sql. A task that goes back has no holder any more; the history takes the worker from the parameters.
-- Safe: as complete.sql.
WITH {{moment}},
said AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(said)s::json) AS said
        (id bigint, token bigint, worker_id text, error text, retry_in bigint, permanent boolean, jitter float8)
),
{{in_turn}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN task.cancel_requested THEN 'cancelled'
                     WHEN said.permanent OR task.attempts_left <= 1 THEN 'failed'
                     WHEN said.retry_in = 0 THEN 'pending'
                     ELSE 'scheduled' END,
        attempts = task.attempts + 1,
        error = said.error,
        finished_at = CASE WHEN task.cancel_requested OR said.permanent OR task.attempts_left <= 1
                           THEN moment.now END,
        run_at = moment.now + coalesce(said.retry_in,
            (least(task.backoff_cap, task.backoff_base * power(2::float8, least(task.attempts, 40)))
             * said.jitter)::bigint),
        ready_at = moment.now,
        worker_id = CASE WHEN task.cancel_requested OR said.permanent OR task.attempts_left <= 1
                         THEN task.worker_id END,
        claimed_at = CASE WHEN task.cancel_requested OR said.permanent OR task.attempts_left <= 1
                          THEN task.claimed_at END,
        lease_until = NULL,
        ahead = false,
        random_key = {{random_place: task.attempts_left - 1}},
        weighted_key = {{weighted_place: task.attempts_left - 1}}
    FROM said, in_turn, moment
    WHERE task.id = in_turn.id AND task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id
      AND {{still: 'claimed'}}
    RETURNING task.id AS task_id, CASE task.state WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END AS event,
        'claimed' AS from_state, task.state AS to_state, said.worker_id AS by_worker, task.token AS under_token, task.error AS detail,
        task.attempts, task.run_at, task.queue, task.type
),
{{noted}}
SELECT * FROM changed
