-- Promise: which of these tasks are steps, and in whose tree. Parameters: ids. Rows: (task_id, root).
SELECT task.id, coalesce(workflow.root_id, workflow.id)
FROM dibs_tasks AS task JOIN dibs_workflows AS workflow ON workflow.id = task.workflow_id
WHERE task.id IN (SELECT value FROM json_each(:ids))
