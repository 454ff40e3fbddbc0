-- Promise: the task goes back without an attempt spent, if this worker still holds it under this token; pending at
-- once or scheduled after `delay`, cancelled when somebody asked for that.
-- Parameters: id, token, worker_id, delay, now. Rows as in complete.sql; the detail says that it was a
-- release. A task that goes back has no holder any more (see fail.sql). Safe: as complete.sql.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN :delay > 0 THEN 'scheduled' ELSE 'pending' END,
    finished_at = CASE WHEN cancel_requested THEN :now END,
    run_at = :now + :delay,
    ready_at = :now,
    worker_id = CASE WHEN cancel_requested THEN worker_id END,
    claimed_at = CASE WHEN cancel_requested THEN claimed_at END,
    lease_until = NULL,
    ahead = 0,
    {{fresh_keys: dibs_tasks.attempts_left}}
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed' {{whose}}
RETURNING id, CASE state WHEN 'cancelled' THEN 'cancelled' ELSE 'released' END, 'claimed', state, :worker_id, token,
    CASE state WHEN 'cancelled' THEN '{"outcome":"released"}' END, attempts, run_at, queue, type
