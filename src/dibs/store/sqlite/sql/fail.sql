-- Promise: the attempt failed, if this worker still holds the task under this token. The task waits for its next
-- attempt (retry_in, else its backoff: base * 2^failures, at most cap, times jitter), or fails for good when it is
-- permanent or was the last attempt, or is cancelled when somebody asked for that.
-- Parameters: id, token, worker_id, error, retry_in, permanent, jitter, now. Rows as in complete.sql.
-- A task that goes back has no holder any more. RETURNING sees the row as it is now, so the history takes the worker
-- from the parameters. Safe: as complete.sql.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled'
                 WHEN :permanent OR attempts_left <= 1 THEN 'failed'
                 WHEN :retry_in = 0 THEN 'pending'
                 ELSE 'scheduled' END,
    attempts = attempts + 1,
    error = :error,
    finished_at = CASE WHEN cancel_requested OR :permanent OR attempts_left <= 1 THEN :now END,
    run_at = :now + coalesce(:retry_in,
        CAST(min(backoff_cap, backoff_base * (1 << min(attempts, 40))) * :jitter AS INTEGER)),
    ready_at = :now,
    worker_id = CASE WHEN cancel_requested OR :permanent OR attempts_left <= 1 THEN worker_id END,
    claimed_at = CASE WHEN cancel_requested OR :permanent OR attempts_left <= 1 THEN claimed_at END,
    lease_until = NULL,
    ahead = 0,
    {{fresh_keys: dibs_tasks.attempts_left - 1}}
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed' {{whose}}
RETURNING id, CASE state WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END, 'claimed', state, :worker_id, token,
    error, attempts, run_at, queue, type
