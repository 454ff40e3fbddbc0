-- Promise: who waits for whom in the workflow. Parameters: id. Rows: (parent, child).
SELECT edge.parent_id, edge.child_id
FROM dibs_steps AS step JOIN dibs_edges AS edge ON edge.child_id = step.task_id
WHERE step.workflow_id = %(id)s
ORDER BY edge.child_id, edge.parent_id
