-- Promise: the task is completed, if this worker still holds it under this token.
-- Parameters: id, token, worker_id, result, now. Rows: history columns, attempts, run_at; none if refused.
-- Safe: the fence is in the one statement that writes. A token is issued once, so a stale one matches nothing.
UPDATE dibs_tasks
SET state = 'completed', attempts = attempts + 1, result = :result, error = NULL, finished_at = :now,
    lease_until = NULL, ahead = 0
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed'
RETURNING id, 'completed', 'claimed', state, worker_id, token, NULL, attempts, run_at
