-- Promise: how these tasks stand as steps. Parameters: ids.
-- Rows: (task_id, workflow_id, name, kind, passed, the workflow's state, stopping, on_failure, root).
SELECT step.task_id, step.workflow_id, step.name, step.kind, step.passed, workflow.state, workflow.stopping,
       workflow.on_failure, coalesce(workflow.root_id, workflow.id)
FROM dibs_steps AS step JOIN dibs_workflows AS workflow ON workflow.id = step.workflow_id
WHERE step.task_id IN (SELECT value FROM json_each(:ids))
