-- Promise: this task now belongs to this worker, if it was pending and its queue is not paused.
-- Parameters: id, worker_id, incarnation, lease, request, now. Rows: history columns, task columns; none if not claimable.
-- Safe: one statement under the write lock; the loser of a race finds the task no longer pending.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = :worker_id, incarnation = :incarnation, claimed_at = :now,
    lease_until = :now + :lease, ahead = 0, request = :request, progress = NULL, progress_message = NULL
WHERE id = :id AND state = 'pending'
  AND NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = dibs_tasks.queue AND paused_at IS NOT NULL)
RETURNING id, 'claimed', 'pending', state, worker_id, token, NULL, {{task}}
