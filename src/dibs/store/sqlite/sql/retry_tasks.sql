-- Promise: these tasks are pending again with all their attempts; as retry.sql, for many in the same state.
-- Parameters: ids, from_state (of all of them), now. Rows: history columns. Index: the primary key.
-- Safe: hold_tasks.sql saw them in the same transaction.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL, set_aside = NULL,
    {{fresh_keys: dibs_tasks.max_attempts}}
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state
RETURNING id, 'retried', :from_state, state, NULL, token, NULL
