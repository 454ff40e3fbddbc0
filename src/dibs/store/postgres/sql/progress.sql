-- Promise: how far each task is, if its worker still holds it under its token.
-- Parameters: arrays of id, token, worker_id, progress, progress_message; no claim twice.
-- Rows: (id, token, worker_id, cancel_requested); none where refused. Safe: as complete.sql.
UPDATE dibs_tasks AS task SET progress = said.progress, progress_message = said.progress_message
FROM unnest(%(id)s::bigint[], %(token)s::bigint[], %(worker_id)s::text[], %(progress)s::integer[],
            %(progress_message)s::text[]) AS said (id, token, worker_id, progress, progress_message)
WHERE task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id AND {{still: 'claimed'}}
RETURNING task.id, task.token, task.worker_id, task.cancel_requested
