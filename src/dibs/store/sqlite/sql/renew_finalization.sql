-- Promise: the claim is extended, if this processor has it under this token. Parameters: id, processor, token, lease, now.
-- Rows: (token, lease_until); none if it has not. A lease that ran out is extended too, if no other claim was granted since.
-- Safe: the condition names the processor, the token and the state, under the write lock.
UPDATE dibs_workflows SET finalization_until = :now + :lease
WHERE id = :id AND finalization_by = :processor AND finalization_token = :token AND state = 'running'
RETURNING finalization_token, finalization_until
