-- Promise: the claim is given up, if this processor has it under this token. Parameters: id, processor, token.
-- Rows: (released); none if it has not. Safe: the condition names the processor and the token, under the write lock.
UPDATE dibs_workflows SET finalization_by = NULL, finalization_until = NULL
WHERE id = :id AND finalization_by = :processor AND finalization_token = :token
RETURNING 1
