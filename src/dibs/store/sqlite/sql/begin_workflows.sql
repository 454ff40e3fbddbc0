-- Promise: the time of these sub-workflows runs from now on. Parameters: ids, now. Rows: none.
UPDATE dibs_workflows SET deadline = :now + allowed
WHERE id IN (SELECT value FROM json_each(:ids)) AND allowed IS NOT NULL
