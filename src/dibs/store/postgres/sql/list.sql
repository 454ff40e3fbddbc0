-- Promise: a page of tasks, newest first. Parameters: limit and those of the conditions. Rows: task columns.
SELECT {{task}} FROM dibs_tasks AS task WHERE task.id > 0 {{conditions}} ORDER BY task.id DESC LIMIT {{limit}}
