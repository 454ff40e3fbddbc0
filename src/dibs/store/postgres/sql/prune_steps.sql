-- Promise: up to `limit` tasks of these trees of workflows are deleted. Parameters: ids (of the roots), limit, now.
-- Rows: history columns. Index: dibs_steps_names, workflow by workflow (OFFSET 0 keeps the planner from anything else).
-- Programs that do not know workflows may have deleted some before.
WITH {{moment}},
changed AS (
    DELETE FROM dibs_tasks AS task
    WHERE task.id = ANY (ARRAY(
        SELECT step.task_id
        FROM (SELECT id FROM dibs_workflows WHERE id = ANY(%(ids)s::bigint[]) UNION ALL
              SELECT id FROM dibs_workflows WHERE root_id = ANY(%(ids)s::bigint[])) AS workflow
        CROSS JOIN LATERAL (
            SELECT step.task_id FROM dibs_steps AS step JOIN dibs_tasks AS old ON old.id = step.task_id
            WHERE step.workflow_id = workflow.id OFFSET 0) AS step
        LIMIT {{limit}}))
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
