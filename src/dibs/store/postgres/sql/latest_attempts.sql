-- Promise: the newest recorded wishes to finalize the workflow, newest first. Parameters: id, limit.
-- Rows: (id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at).
-- Index: dibs_finalization_attempts_workflow.
SELECT id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at
FROM dibs_finalization_attempts WHERE workflow_id = %(id)s ORDER BY id DESC LIMIT {{limit}}
