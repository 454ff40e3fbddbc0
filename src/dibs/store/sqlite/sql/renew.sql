-- Promise: the lease ends `lease` from now, if this worker still holds the task under this token.
-- Parameters: id, token, worker_id, lease, now.
-- Rows: (id, token, worker_id, lease_until, cancel_requested); none if refused.
-- Safe: as complete.sql; a claim that was recovered has another state or token, so it cannot be renewed back.
UPDATE dibs_tasks SET lease_until = :now + :lease
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed'
RETURNING id, token, worker_id, lease_until, cancel_requested
