-- Promise: nothing was to be finalized: the claim is given up, and the workflow is checked again when a step ends, or at
-- the next upkeep if nothing is active. Parameters: id. Rows: none.
UPDATE dibs_workflows
SET finalization_by = NULL, finalization_until = NULL, due_at = CASE WHEN active = 0 THEN due_at END
WHERE id = %(id)s
