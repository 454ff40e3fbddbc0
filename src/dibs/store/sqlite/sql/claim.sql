-- Promise: the picked tasks now belong to this worker, each under its next token.
-- Parameters: ids, worker_id, incarnation, lease, ahead, request, now. Rows: history columns, task columns.
-- Safe: the write lock is held since before the tasks were picked; `state = 'pending'` says so once more.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = :worker_id, incarnation = :incarnation, claimed_at = :now,
    lease_until = :now + :lease, ahead = :ahead, request = :request, progress = NULL, progress_message = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'pending'
RETURNING id, 'claimed', 'pending', state, worker_id, token, NULL, {{task}}
