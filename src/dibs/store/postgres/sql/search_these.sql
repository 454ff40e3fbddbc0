-- Promise: those of these tasks that match and are below an id, newest first.
-- Parameters: ids, below, limit and those of the conditions.
-- Rows: lines of tasks (whole tasks, where the word task_line says so). Index: the primary key.
SELECT {{task_line}} FROM dibs_tasks AS task
WHERE task.id < %(below)s {{with_these_ids}} {{conditions}}
ORDER BY task.id DESC LIMIT {{limit}}
