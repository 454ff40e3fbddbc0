-- Promise: these waiting tasks are cancelled. Parameters: ids, from_state (of all of them), now.
-- Rows: history columns. Index: the primary key. Safe: hold_tasks.sql saw them in the same transaction.
UPDATE dibs_tasks SET state = 'cancelled', cancel_requested = 1, finished_at = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state
RETURNING id, 'cancelled', :from_state, state, NULL, token, NULL
