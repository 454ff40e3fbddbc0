-- Promise: nothing more is begun in this workflow; the first reason stays, but for 'failed', which leaves alone what runs.
-- Parameters: id, why. Rows: (id); none if it had ended or was stopping.
UPDATE dibs_workflows SET stopping = %(why)s
WHERE id = %(id)s AND (stopping IS NULL OR (stopping = 'failed' AND %(why)s::text <> 'failed'))
  AND state IN ('running', 'finalizing')
RETURNING id
