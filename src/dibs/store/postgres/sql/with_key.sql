-- Promise: the task that has this key. Parameters: key. Rows: (id). Index: dibs_tasks_key.
SELECT id FROM dibs_tasks WHERE key = %(key)s
