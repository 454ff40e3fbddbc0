-- Promise: these steps are open again: blocked, with all their attempts. Those that wait for nothing are readied next.
-- What failed does not wait for its backoff. Parameters: ids, from_state, now. Rows: history columns.
UPDATE dibs_tasks
SET state = 'blocked', attempts = 0, cancel_requested = 0, finished_at = NULL, worker_id = NULL, claimed_at = NULL,
    set_aside = NULL,
    run_at = CASE WHEN :from_state = 'failed' THEN :now ELSE run_at END
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state
RETURNING id, 'retried', :from_state, state, NULL, token, NULL
