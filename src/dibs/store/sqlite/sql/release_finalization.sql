-- Promise: the claim is given up, if this processor has it. Parameters: id, processor. Rows: (released).
UPDATE dibs_workflows SET finalization_by = NULL, finalization_until = NULL
WHERE id = :id AND finalization_by = :processor
RETURNING 1
