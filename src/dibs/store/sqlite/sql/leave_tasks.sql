-- Promise: these tasks, which were just recovered and are pending, have no holder any more. Parameters: ids. Rows: none.
-- Index: the primary key. Safe: the transaction that recovered them still holds the write lock.
UPDATE dibs_tasks SET worker_id = NULL, claimed_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'pending'
