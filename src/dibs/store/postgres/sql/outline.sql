-- Promise: what never changes of the workflow's first steps, in the order in which they were added. Parameters: id, limit.
-- Rows: (task_id, name, kind, type). Index: dibs_steps_names, and the primary key of the tasks.
SELECT step.task_id, step.name, step.kind, task.type
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = %(id)s
ORDER BY step.task_id LIMIT {{limit}}
