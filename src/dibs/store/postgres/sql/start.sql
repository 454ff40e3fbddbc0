-- Promise: each task begins now and is charged if its worker is lost, if that worker still holds it under its token.
-- Parameters: said (a JSON array of objects with id, token, worker_id).
-- Rows: (id, token, worker_id); none where refused. Safe: as complete.sql.
--
-- A worker says so, before it runs the task, only where `dropped` is not 0. Of a batch that was lost with its worker
-- nobody knows which one was running, so the first loss is forgiven to all of them; from then on their starts are
-- written down one by one, so that a task that kills its worker is charged, and its neighbours are not. To write down
-- every start would cost a durable write for each task that never harmed anybody.
WITH said AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(said)s::json) AS said (id bigint, token bigint, worker_id text)
),
{{in_turn}}
UPDATE dibs_tasks AS task SET ahead = false
FROM said, in_turn
WHERE task.id = in_turn.id AND task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id
  AND {{still: 'claimed'}}
RETURNING task.id, task.token, task.worker_id
