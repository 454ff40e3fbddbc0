-- Promise: the tasks with these ids that exist. Parameters: ids. Rows: task columns.
SELECT {{task}} FROM dibs_tasks AS task WHERE task.id = ANY(%(ids)s::bigint[])
