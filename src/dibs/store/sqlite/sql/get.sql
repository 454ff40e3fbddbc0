-- Promise: the tasks with these ids that exist. Parameters: ids. Rows: task columns.
SELECT {{task}} FROM dibs_tasks WHERE id IN (SELECT value FROM json_each(:ids))
