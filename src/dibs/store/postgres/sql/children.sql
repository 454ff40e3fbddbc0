-- Promise: the steps that wait for this one, also those that were given up. Parameters: id. Rows: (task_id).
SELECT child_id FROM dibs_edges WHERE parent_id = %(id)s
