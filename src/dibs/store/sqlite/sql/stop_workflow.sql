-- Promise: nothing more is begun in this workflow; the first reason stays, but for 'failed', which leaves alone what runs.
-- Parameters: id, why. Rows: (id); none if it had ended or was stopping.
UPDATE dibs_workflows SET stopping = :why
WHERE id = :id AND (stopping IS NULL OR (stopping = 'failed' AND :why <> 'failed'))
  AND state IN ('running', 'finalizing')
RETURNING id
