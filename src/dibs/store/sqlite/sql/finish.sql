-- Writes of the holder of a claim: outcomes, renewals, progress, checkpoints.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: complete
-- Promise: each task is completed, if its worker still holds it under its token.
-- Parameters: items (a JSON array of objects with id, token, worker_id, result), now.
-- Words: step_condition (`not_a_step` where no workflow is locked, or nothing).
-- Rows: history columns, attempts, run_at, queue, type; none where refused.
-- One statement for all: a statement for each would let go of the interpreter's lock and fight for it again each time.
-- Safe: the fence is in the one statement that writes. A token is issued once, so a stale one matches nothing.
UPDATE dibs_tasks AS task
SET state = 'completed', attempts = task.attempts + 1, result = items.result, error = NULL, finished_at = :now,
    lease_until = NULL, ahead = 0
FROM (SELECT value ->> 'id' AS id, value ->> 'token' AS token, value ->> 'worker_id' AS worker_id,
             value ->> 'result' AS result
      FROM json_each(:items)) AS items
WHERE task.id = items.id AND task.token = items.token AND task.worker_id = items.worker_id AND +task.state = 'claimed' {{step_condition}}
RETURNING id, 'completed', 'claimed', state, worker_id, token, NULL, attempts, run_at, queue, type

-- name: fail
-- Promise: the attempt failed, if this worker still holds the task under this token. The task waits for its next
-- attempt (retry_in, else its `backoff` times jitter), or fails for good when it is
-- permanent or was the last attempt, or is cancelled when its cancellation was requested.
-- Parameters: id, token, worker_id, error, retry_in, permanent, jitter, now. Rows as in `complete`.
-- A task that goes back has no holder. RETURNING sees the row as it is now, so the history takes the worker
-- from the parameters. Safe: as `complete`.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled'
                 WHEN :permanent OR attempts_left <= 1 THEN 'failed'
                 WHEN :retry_in = 0 THEN 'pending'
                 ELSE 'scheduled' END,
    attempts = attempts + 1,
    error = :error,
    finished_at = CASE WHEN cancel_requested OR :permanent OR attempts_left <= 1 THEN :now END,
    run_at = :now + coalesce(:retry_in, CAST({{backoff}} * :jitter AS bigint)),
    ready_at = :now,
    expires_at = NULL,
    worker_id = CASE WHEN cancel_requested OR :permanent OR attempts_left <= 1 THEN worker_id END,
    claimed_at = CASE WHEN cancel_requested OR :permanent OR attempts_left <= 1 THEN claimed_at END,
    lease_until = NULL,
    ahead = 0,
    {{fresh_keys}}
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed' {{step_condition}}
RETURNING id, CASE state WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END, 'claimed', state, :worker_id, token,
    error, attempts, run_at, queue, type

-- name: release
-- Promise: the task goes back without an attempt spent, if this worker still holds it under this token; pending at
-- once or scheduled after `delay`, cancelled when its cancellation was requested. A task that was claimed ahead and is
-- not known to be started can still expire.
-- Parameters: id, token, worker_id, delay, now. Rows as in `complete`; the detail says that it was a
-- release. A task that goes back has no holder (see `fail`). Safe: as `complete`.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN :delay > 0 THEN 'scheduled' ELSE 'pending' END,
    finished_at = CASE WHEN cancel_requested THEN :now END,
    run_at = :now + :delay,
    ready_at = :now,
    expires_at = CASE WHEN ahead THEN expires_at END,
    worker_id = CASE WHEN cancel_requested THEN worker_id END,
    claimed_at = CASE WHEN cancel_requested THEN claimed_at END,
    lease_until = NULL,
    ahead = 0,
    {{fresh_keys}}
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed' {{step_condition}}
RETURNING id, CASE state WHEN 'cancelled' THEN 'cancelled' ELSE 'released' END, 'claimed', state, :worker_id, token,
    CASE state WHEN 'cancelled' THEN '{"outcome":"released"}' END, attempts, run_at, queue, type

-- name: stop
-- Promise: the running task is cancelled by its own worker, if it still holds it under this token.
-- Parameters: id, token, worker_id, now. Rows as in `complete`. Safe: as `complete`.
UPDATE dibs_tasks
SET state = 'cancelled', attempts = attempts + 1, finished_at = :now, lease_until = NULL, ahead = 0
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed' {{step_condition}}
RETURNING id, 'cancelled', 'claimed', state, worker_id, token, NULL, attempts, run_at, queue, type

-- name: claim_outcomes
-- Promise: how the claim with this token ended, for a worker that repeats a request because the answer was lost.
-- Parameters: id, token. Rows: (task_id, token, event, to_state, worker_id, detail). Index: dibs_history_task.
SELECT task_id, token, event, to_state, worker_id, detail FROM dibs_history
WHERE task_id = :id AND token = :token AND event IN ('completed', 'failed', 'released', 'cancelled')
ORDER BY id

-- name: start
-- Promise: the task starts now and is charged if its worker is lost, if this worker still holds the task under this
-- token and the task has not expired before.
-- Parameters: id, token, worker_id, now. Rows: (id, token, worker_id); none if refused. Safe: as `complete`.
--
-- A worker reports the start, before it runs the task, only where `dropped` is not 0, or where the task expires: it
-- does not start a task after its expiry, which the database's clock decides. When a batch is lost with its
-- worker, the store does not know which task was running, so the first loss charges none of them; from then on their
-- starts are recorded one by one, so that a task that kills its worker is charged, and its neighbours are not.
-- Recording every start would cost a durable write for each task that never harms a worker.
UPDATE dibs_tasks SET ahead = 0
WHERE id = :id AND token = :token AND worker_id = :worker_id AND NOT coalesce(ahead AND expires_at <= :now, 0)
  AND state = 'claimed'
RETURNING id, token, worker_id

-- name: renew
-- Promise: the lease ends `lease` from now, if this worker still holds the task under this token.
-- Parameters: id, token, worker_id, lease, now.
-- Rows: (id, token, worker_id, lease_until, cancel_requested); none if refused.
-- Safe: as `complete`; a claim that was recovered has another state or token, so it cannot be renewed back.
UPDATE dibs_tasks SET lease_until = :now + :lease
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed'
RETURNING id, token, worker_id, lease_until, cancel_requested

-- name: progress
-- Promise: the progress of the task is stored, if this worker still holds the task under this token.
-- Parameters: id, token, worker_id, progress, progress_message.
-- Rows: (id, token, worker_id, cancel_requested); none if refused. Safe: as `complete`.
UPDATE dibs_tasks SET progress = :progress, progress_message = :progress_message
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed'
RETURNING id, token, worker_id, cancel_requested

-- name: keep_checkpoint
-- Promise: the value is kept under this name, if this worker still holds the task under this token and nothing is kept
-- there yet. Parameters: id, token, worker_id, name, value, now. Rows: (value); none if refused, or if there is one.
-- Safe: the fence is read under the task's lock, so the claim cannot be lost between the check and the commit.
INSERT INTO dibs_checkpoints (task_id, name, value, token, at)
SELECT id, :name, :value, :token, :now FROM dibs_tasks
WHERE id = :id AND token = :token AND worker_id = :worker_id AND +state = 'claimed'
ON CONFLICT (task_id, name) DO NOTHING
RETURNING value
