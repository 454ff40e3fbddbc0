-- Promise: those steps of the workflow that have one of these names. Parameters: id, keys (the names).
-- Rows: (name, task_id, passed). Index: dibs_steps_names.
SELECT name, task_id, passed FROM dibs_steps WHERE workflow_id = %(id)s AND name = ANY(%(keys)s::text[])
