-- Promise: an ended workflow runs again. Parameters: id. Rows: (id); none if it has not failed or been cancelled.
-- A deadline in seconds begins anew, that of a sub-workflow with its step (see begin_workflows.sql); one that was a
-- moment is gone if it is past: it could only fail again. What is being pruned stays as it is.
UPDATE dibs_workflows
SET state = 'running', stopping = NULL, error = NULL, finished_at = NULL, due_at = NULL,
    deadline = CASE WHEN allowed IS NOT NULL THEN CASE WHEN step_of IS NULL THEN :now + allowed END
                    WHEN deadline > :now THEN deadline END
WHERE id = :id AND state IN ('failed', 'cancelled') AND stopping IS NOT 'pruned'
RETURNING id
