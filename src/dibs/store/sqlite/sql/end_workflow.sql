-- Promise: the workflow has ended so, once. Parameters: id, state, error, now.
-- Rows: (step_of); none if it had ended. Safe: the tree is held, and `state` lets nobody end it twice.
UPDATE dibs_workflows
SET state = :state, error = :error, finished_at = :now, due_at = NULL, finalization_by = NULL, finalization_until = NULL
WHERE id = :id AND state IN ('running', 'finalizing')
RETURNING step_of
