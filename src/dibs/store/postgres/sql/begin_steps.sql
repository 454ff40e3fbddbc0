-- Promise: the steps of these sub-workflows that wait for no other step wait for nothing any more. Parameters: ids.
-- Rows: (task_id, workflow_id, kind, waits, passed). Also of those that were cancelled before: somebody may retry them.
UPDATE dibs_steps AS step SET waits = 0
WHERE step.workflow_id = ANY(%(ids)s::bigint[]) AND step.kind <> 'finalizer' AND step.waits > 0
  AND NOT EXISTS (SELECT FROM dibs_edges AS edge JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
                  WHERE edge.child_id = step.task_id AND parent.passed IS NOT TRUE)
RETURNING step.task_id, step.workflow_id, step.kind, step.waits, step.passed
