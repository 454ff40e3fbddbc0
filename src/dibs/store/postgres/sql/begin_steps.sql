-- Promise: the steps of these sub-workflows that have no parents wait for nothing any more. Parameters: ids.
-- Rows: (task_id, workflow_id, kind, waits).
UPDATE dibs_steps AS step SET waits = 0
WHERE step.workflow_id = ANY(%(ids)s::bigint[]) AND step.passed IS NULL AND step.kind <> 'finalizer' AND step.waits > 0
  AND NOT EXISTS (SELECT FROM dibs_edges AS edge WHERE edge.child_id = step.task_id)
RETURNING step.task_id, step.workflow_id, step.kind, step.waits
