-- Promise: the finalization of this workflow belongs to this processor, under the next token, or the same where it has it.
-- Parameters: id, processor, lease, now. Rows: (token, lease_until).
-- Safe: the write lock is held since before the workflow was looked at, so nobody can claim in between.
UPDATE dibs_workflows
SET finalization_token = finalization_token + NOT (coalesce(finalization_until, 0) > :now AND finalization_by IS :processor),
    finalization_by = :processor, finalization_until = :now + :lease
WHERE id = :id AND state = 'running'
  AND (finalization_until IS NULL OR finalization_until <= :now OR finalization_by = :processor)
RETURNING finalization_token, finalization_until
