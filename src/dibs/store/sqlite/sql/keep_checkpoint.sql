-- Promise: the value is kept under this name, if this worker still holds the task under this token and nothing is kept
-- there yet. Parameters: id, token, worker_id, name, value, now. Rows: (value); none if refused, or if there is one.
-- Safe: the fence is read under the task's lock, so the claim cannot be lost between the look and the commit.
INSERT INTO dibs_checkpoints (task_id, name, value, token, at)
SELECT id, :name, :value, :token, :now FROM dibs_tasks
WHERE id = :id AND token = :token AND worker_id = :worker_id AND +state = 'claimed'
ON CONFLICT (task_id, name) DO NOTHING
RETURNING value
