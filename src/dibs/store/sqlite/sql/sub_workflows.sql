-- Promise: the sub-workflows that are steps of this workflow and have not ended. Parameters: id. Rows: (id).
SELECT sub.id
FROM dibs_steps AS step
JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.workflow_id = :id AND step.kind = 'workflow' AND sub.state IN ('running', 'finalizing')
ORDER BY sub.id
