-- Promise: the steps of these sub-workflows that have no parents wait for nothing any more. Parameters: ids.
-- Rows: (task_id, workflow_id, kind, waits).
UPDATE dibs_steps SET waits = 0
WHERE workflow_id IN (SELECT value FROM json_each(:ids)) AND passed IS NULL AND kind <> 'finalizer' AND waits > 0
  AND NOT EXISTS (SELECT 1 FROM dibs_edges WHERE child_id = task_id)
RETURNING task_id, workflow_id, kind, waits
