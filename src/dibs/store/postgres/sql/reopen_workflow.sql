-- Promise: an ended workflow runs again. Parameters: id. Rows: (id); none if it has not failed or been cancelled.
-- A deadline in seconds begins anew, that of a sub-workflow with its step (see begin_workflows.sql); one that was a
-- moment is gone if it is past: it could only fail again. What is being pruned stays as it is.
WITH {{moment}}
UPDATE dibs_workflows AS workflow
SET state = 'running', stopping = NULL, error = NULL, finished_at = NULL, due_at = NULL,
    deadline = CASE WHEN workflow.allowed IS NOT NULL THEN CASE WHEN workflow.step_of IS NULL THEN moment.now + workflow.allowed END
                    WHEN workflow.deadline > moment.now THEN workflow.deadline END
FROM moment
WHERE workflow.id = %(id)s AND workflow.state IN ('failed', 'cancelled')
  AND workflow.stopping IS DISTINCT FROM 'pruned'
RETURNING workflow.id
