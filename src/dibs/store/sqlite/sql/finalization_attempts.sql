-- Promise: every recorded wish to finalize the workflow, in order. Parameters: id.
-- Rows: (id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at).
SELECT id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at
FROM dibs_finalization_attempts WHERE workflow_id = :id ORDER BY id
