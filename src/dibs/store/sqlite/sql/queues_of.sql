-- Promise: the queues of the tasks with these ids that exist. Parameters: ids. Rows: (id, queue). Index: the primary key.
SELECT id, queue FROM dibs_tasks WHERE id IN (SELECT value FROM json_each(:ids))
