-- Promise: up to `limit` workflows past their deadline that are not yet stopped for that, nor by somebody. Parameters: limit, now. Rows: (id).
-- Index: dibs_workflows_deadline.
SELECT id FROM dibs_workflows INDEXED BY dibs_workflows_deadline
WHERE state IN ('running', 'finalizing') AND deadline IS NOT NULL AND deadline <= :now AND (stopping IS NULL OR stopping = 'failed') ORDER BY deadline LIMIT {{limit}}
