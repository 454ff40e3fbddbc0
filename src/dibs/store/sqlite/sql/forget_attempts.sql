-- Promise: the recorded wishes to finalize the workflows of this tree are gone. Parameters: id (the root's). Rows: none.
DELETE FROM dibs_finalization_attempts
WHERE workflow_id IN (SELECT id FROM dibs_workflows WHERE id = :id OR root_id = :id)
