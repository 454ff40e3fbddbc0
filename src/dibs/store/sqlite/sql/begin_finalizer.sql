-- Promise: the workflow's steps are done and its finalizer begins; the right to finalize passes to the finalizer's own
-- claim. Parameters: id. Rows: (finalizer_id). Safe: the tree is held, and `state` lets nobody begin it twice.
UPDATE dibs_workflows SET state = 'finalizing', due_at = NULL, finalization_by = NULL, finalization_until = NULL
WHERE id = :id AND state = 'running' AND finalizer_id IS NOT NULL
RETURNING finalizer_id
