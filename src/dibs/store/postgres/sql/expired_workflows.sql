-- Promise: up to `limit` workflows past their deadline that nobody has stopped yet. Parameters: limit, now. Rows: (id).
-- Index: dibs_workflows_deadline.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE state = 'running' AND deadline IS NOT NULL AND deadline <= (SELECT now FROM moment) AND stopping IS NULL
ORDER BY deadline LIMIT {{limit}}
