-- Promise: the workflow has ended so, once. Parameters: id, state, error, now.
-- Rows: (step_of); none if it had ended. Safe: the tree is held, and `state` lets nobody end it twice.
WITH {{moment}}
UPDATE dibs_workflows AS workflow
SET state = %(state)s, error = %(error)s, finished_at = moment.now, due_at = NULL, finalization_by = NULL,
    finalization_until = NULL
FROM moment
WHERE workflow.id = %(id)s AND workflow.state IN ('running', 'finalizing')
RETURNING workflow.step_of
