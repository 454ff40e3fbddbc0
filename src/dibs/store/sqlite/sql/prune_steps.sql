-- Promise: up to `limit` tasks of these trees of workflows are deleted. Parameters: ids (of the roots), limit, now.
-- Rows: history columns. Programs that do not know workflows may have deleted some before.
DELETE FROM dibs_tasks
WHERE id IN (SELECT step.task_id FROM dibs_steps AS step JOIN dibs_tasks AS old ON old.id = step.task_id
             WHERE step.workflow_id IN
                      (SELECT id FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids)) UNION ALL
                       SELECT id FROM dibs_workflows WHERE root_id IN (SELECT value FROM json_each(:ids)))
             LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL
