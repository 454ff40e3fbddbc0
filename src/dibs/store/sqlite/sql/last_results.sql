-- Promise: what those steps of the workflow came to that no other waits for. Parameters: id. Rows as in results.sql.
SELECT step.task_id, step.name, task.type, task.state, task.result, task.error, task.queue
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.kind <> 'finalizer'
  AND NOT EXISTS (SELECT 1 FROM dibs_edges AS edge WHERE edge.parent_id = step.task_id)
ORDER BY step.task_id
