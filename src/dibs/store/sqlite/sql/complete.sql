-- Promise: each task is completed, if its worker still holds it under its token.
-- Parameters: said (a JSON array of objects with id, token, worker_id, result), now.
-- Words: whose (plain for tasks that are no steps, whose workflow nobody holds).
-- Rows: history columns, attempts, run_at, queue, type; none for those refused.
-- One statement for all: a statement for each would let go of the interpreter's lock and fight for it again each time.
-- Safe: the fence is in the one statement that writes. A token is issued once, so a stale one matches nothing.
UPDATE dibs_tasks AS task
SET state = 'completed', attempts = task.attempts + 1, result = said.result, error = NULL, finished_at = :now,
    lease_until = NULL, ahead = 0
FROM (SELECT value ->> 'id' AS id, value ->> 'token' AS token, value ->> 'worker_id' AS worker_id,
             value ->> 'result' AS result
      FROM json_each(:said)) AS said
WHERE task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id AND +task.state = 'claimed' {{whose}}
RETURNING id, 'completed', 'claimed', state, worker_id, token, NULL, attempts, run_at, queue, type
