-- Promise: the time of these sub-workflows runs from now on. Parameters: ids, now. Rows: none.
WITH {{moment}}
UPDATE dibs_workflows AS workflow SET deadline = moment.now + workflow.allowed
FROM moment
WHERE workflow.id = ANY(%(ids)s::bigint[]) AND workflow.allowed IS NOT NULL
