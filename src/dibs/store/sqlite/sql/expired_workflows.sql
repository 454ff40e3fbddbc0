-- Promise: up to `limit` workflows past their deadline that nobody has stopped yet. Parameters: limit, now. Rows: (id).
-- Index: dibs_workflows_deadline.
SELECT id FROM dibs_workflows INDEXED BY dibs_workflows_deadline
WHERE state = 'running' AND deadline IS NOT NULL AND deadline <= :now AND stopping IS NULL ORDER BY deadline LIMIT {{limit}}
