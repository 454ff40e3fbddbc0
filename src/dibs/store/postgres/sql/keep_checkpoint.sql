-- Promise: the value is kept under this name, if this worker still holds the task under this token and nothing is kept
-- there yet. Parameters: id, token, worker_id, name, value, now. Rows: (value); none if refused, or if there is one.
-- Safe: the fence is read under the task's lock, so the claim cannot be lost between the look and the commit.
WITH {{moment}},
held AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE id = %(id)s AND token = %(token)s AND worker_id = %(worker_id)s AND {{still: 'claimed'}}
    FOR SHARE
)
INSERT INTO dibs_checkpoints (task_id, name, value, token, at)
SELECT held.id, %(name)s, %(value)s, %(token)s, moment.now FROM held, moment
ON CONFLICT (task_id, name) DO NOTHING
RETURNING value
