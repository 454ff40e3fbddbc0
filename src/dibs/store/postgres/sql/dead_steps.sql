-- Promise: up to `limit` steps of the dead letter that match, the oldest failures first.
-- Parameters: those of redrive.sql. Rows: (task_id, workflow_id).
SELECT task.id, task.workflow_id FROM dibs_tasks AS task
WHERE task.state = 'failed' AND task.workflow_id IS NOT NULL {{conditions}}
ORDER BY task.finished_at LIMIT {{limit}}
