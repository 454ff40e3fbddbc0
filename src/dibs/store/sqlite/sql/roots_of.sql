-- Promise: the roots of the trees that these workflows belong to. Parameters: ids. Rows: (id, root).
SELECT id, coalesce(root_id, id) FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids))
