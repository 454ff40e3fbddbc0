-- Promise: up to `limit` workflows past their deadline that are not yet stopped for that, nor by somebody. Parameters: limit, now. Rows: (id).
-- Index: dibs_workflows_deadline.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE state IN ('running', 'finalizing') AND deadline IS NOT NULL AND deadline <= (SELECT now FROM moment) AND (stopping IS NULL OR stopping = 'failed')
ORDER BY deadline LIMIT {{limit}}
