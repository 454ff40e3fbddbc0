-- Promise: up to `limit` tasks of this tree of workflows are deleted. Parameters: id (the root's), limit, now.
-- Rows: history columns.
WITH {{moment}},
changed AS (
    DELETE FROM dibs_tasks AS task
    WHERE task.id = ANY (ARRAY(
        SELECT step.task_id FROM dibs_steps AS step JOIN dibs_workflows AS workflow ON workflow.id = step.workflow_id
        WHERE workflow.id = %(id)s OR workflow.root_id = %(id)s LIMIT {{limit}}))
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
