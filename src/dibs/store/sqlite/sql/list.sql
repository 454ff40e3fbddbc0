-- Promise: a page of tasks, newest first. Parameters: limit and those of the conditions. Rows: task columns.
SELECT {{task}} FROM dibs_tasks WHERE id > 0 {{conditions}} ORDER BY id DESC LIMIT {{limit}}
