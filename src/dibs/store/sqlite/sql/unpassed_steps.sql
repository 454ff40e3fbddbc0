-- Promise: the workflow's steps that have ended and not passed. Parameters: id. Rows: (task_id, kind, waits, state).
SELECT step.task_id, step.kind, step.waits, task.state
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND NOT step.passed
ORDER BY step.task_id
