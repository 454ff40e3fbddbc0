-- Promise: nothing more is begun in this workflow; the first reason stays. Parameters: id, why. Rows: (id); none if it
-- had ended or was stopping.
UPDATE dibs_workflows SET stopping = :why WHERE id = :id AND stopping IS NULL AND state IN ('running', 'finalizing')
RETURNING id
