-- Promise: the task is pending again with all its attempts, if it still is in the state that was seen.
-- The token stays: it grows with the next claim, so whoever held the task before stays fenced off.
-- Parameters: id, from_state, now. Rows: history columns; none if it moved.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL, set_aside = NULL,
    {{fresh_keys: dibs_tasks.max_attempts}}
WHERE id = :id AND state = :from_state AND state IN ('failed', 'cancelled', 'scheduled')
RETURNING id, 'retried', :from_state, state, NULL, token, NULL
