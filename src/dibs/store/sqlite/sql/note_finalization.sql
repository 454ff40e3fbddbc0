-- Promise: a wish to finalize is recorded. PostgreSQL does it in its function.
-- Parameters: id, processor, claimed, reason, state, message, already_claimed_by, token, now. Rows: none.
INSERT INTO dibs_finalization_attempts
    (workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at)
VALUES (:id, :processor, :claimed, :reason, :state, :message, :already_claimed_by, :token, :now)
