-- Promise: the claim is extended, if this processor has it. Parameters: id, processor, lease, now.
-- Rows: (token, lease_until); none if it has not. A lease that ran out is extended too, if nobody took over.
UPDATE dibs_workflows SET finalization_until = :now + :lease
WHERE id = :id AND finalization_by = :processor AND state = 'running'
RETURNING finalization_token, finalization_until
