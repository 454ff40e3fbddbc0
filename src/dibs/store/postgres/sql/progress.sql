-- Promise: how far the task is, if this worker still holds it under this token.
-- Parameters: id, token, worker_id, progress, progress_message. Rows: (id, cancel_requested); none if refused.
-- Safe: as complete.sql.
UPDATE dibs_tasks AS task SET progress = %(progress)s, progress_message = %(progress_message)s
WHERE task.id = %(id)s AND task.token = %(token)s AND task.worker_id = %(worker_id)s AND {{still: 'claimed'}}
RETURNING task.id, task.cancel_requested
