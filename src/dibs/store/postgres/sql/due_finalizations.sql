-- Promise: up to `limit` workflows that wait for their finalization and that nobody holds, the longest wait first.
-- Parameters: limit, now. Rows: (id). Index: dibs_workflows_due.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE due_at IS NOT NULL AND (finalization_until IS NULL OR finalization_until <= (SELECT now FROM moment))
ORDER BY due_at LIMIT {{limit}}
