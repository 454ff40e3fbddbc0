-- Promise: an ended workflow runs again. Parameters: id. Rows: (id); none if it has not failed or been cancelled.
-- A deadline in seconds begins anew; one that was a moment is gone if it is past: it could only fail again.
UPDATE dibs_workflows
SET state = 'running', stopping = NULL, error = NULL, finished_at = NULL, due_at = NULL,
    deadline = CASE WHEN allowed IS NOT NULL THEN :now + allowed WHEN deadline > :now THEN deadline END
WHERE id = :id AND state IN ('failed', 'cancelled')
RETURNING id
