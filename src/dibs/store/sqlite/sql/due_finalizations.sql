-- Promise: up to `limit` workflows that wait for their finalization and that nobody holds, the longest wait first.
-- Parameters: limit, now. Rows: (id). Index: dibs_workflows_due.
SELECT id FROM dibs_workflows INDEXED BY dibs_workflows_due
WHERE due_at IS NOT NULL AND (finalization_until IS NULL OR finalization_until <= :now)
ORDER BY due_at LIMIT {{limit}}
