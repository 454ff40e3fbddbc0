-- Promise: the steps of these sub-workflows that wait for no other step wait for nothing any more. Parameters: ids.
-- Rows: (task_id, workflow_id, kind, waits, passed). Also of those that were cancelled before: somebody may retry them.
UPDATE dibs_steps SET waits = 0
WHERE workflow_id IN (SELECT value FROM json_each(:ids)) AND kind <> 'finalizer' AND waits > 0
  AND NOT EXISTS (SELECT 1 FROM dibs_edges AS edge JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
                  WHERE edge.child_id = dibs_steps.task_id AND parent.passed IS NOT 1)
RETURNING task_id, workflow_id, kind, waits, passed
