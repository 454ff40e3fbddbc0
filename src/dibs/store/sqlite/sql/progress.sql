-- Promise: how far the task is, if this worker still holds it under this token.
-- Parameters: id, token, worker_id, progress, progress_message.
-- Rows: (id, token, worker_id, cancel_requested); none if refused. Safe: as complete.sql.
UPDATE dibs_tasks SET progress = :progress, progress_message = :progress_message
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed'
RETURNING id, token, worker_id, cancel_requested
