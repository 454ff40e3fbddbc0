-- Promise: those steps of the workflow that have one of these names. Parameters: id, keys (the names).
-- Rows: (name, task_id, passed, queue). Index: dibs_steps_names.
SELECT step.name, step.task_id, step.passed, task.queue
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.name IN (SELECT value FROM json_each(:keys))
