-- Promise: the running task is cancelled by its own worker, if it still holds it under this token.
-- Parameters: id, token, worker_id, now. Rows as in complete.sql. Safe: as complete.sql.
UPDATE dibs_tasks
SET state = 'cancelled', attempts = attempts + 1, finished_at = :now, lease_until = NULL, ahead = 0
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed' {{whose}}
RETURNING id, 'cancelled', 'claimed', state, worker_id, token, NULL, attempts, run_at, queue, type
