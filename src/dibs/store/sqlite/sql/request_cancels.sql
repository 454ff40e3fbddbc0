-- Promise: the workers of these running tasks learn at their next renewal that they should stop.
-- Parameters: ids, from_state. Rows: history columns; none for those who were told before.
-- Index: the primary key.
-- Safe: hold_tasks.sql saw them in the same transaction.
UPDATE dibs_tasks SET cancel_requested = 1
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state AND NOT cancel_requested
RETURNING id, 'cancel_requested', 'claimed', state, worker_id, token, NULL
