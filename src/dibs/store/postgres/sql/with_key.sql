-- Promise: the tasks that have this key, one for each queue that uses it. Parameters: key. Rows: (id). Index: dibs_tasks_key.
SELECT id FROM dibs_tasks WHERE key = %(key)s
