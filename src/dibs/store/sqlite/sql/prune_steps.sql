-- Promise: up to `limit` tasks of this tree of workflows are deleted. Parameters: id (the root's), limit, now.
-- Rows: history columns.
DELETE FROM dibs_tasks
WHERE id IN (SELECT step.task_id FROM dibs_steps AS step JOIN dibs_workflows AS workflow ON workflow.id = step.workflow_id
             WHERE workflow.id = :id OR workflow.root_id = :id LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL
