-- Promise: how far each task is, if its worker still holds it under its token.
-- Parameters: said (a JSON array of objects with id, token, worker_id, progress, progress_message); no claim twice.
-- Rows: (id, token, worker_id, cancel_requested); none where refused. Safe: as complete.sql.
WITH said AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(said)s::json) AS said
        (id bigint, token bigint, worker_id text, progress integer, progress_message text)
),
{{in_turn}}
UPDATE dibs_tasks AS task SET progress = said.progress, progress_message = said.progress_message
FROM said, in_turn
WHERE task.id = in_turn.id AND task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id
  AND {{still: 'claimed'}}
RETURNING task.id, task.token, task.worker_id, task.cancel_requested
