-- Promise: the task begins now and is charged if its worker is lost, if this worker still holds it under this token.
-- Parameters: id, token, worker_id. Rows: (id, token, worker_id); none if refused. Safe: as complete.sql.
--
-- A worker says so, before it runs the task, only where `dropped` is not 0. Of a batch that was lost with its worker
-- nobody knows which one was running, so the first loss is forgiven to all of them; from then on their starts are
-- written down one by one, so that a task that kills its worker is charged, and its neighbours are not. To write down
-- every start would cost a durable write for each task that never harmed anybody.
UPDATE dibs_tasks SET ahead = 0
WHERE id = :id AND token = :token AND worker_id = :worker_id AND state = 'claimed'
RETURNING id, token, worker_id
