-- Promise: the tasks of a stretch of ids that match, newest first.
-- Parameters: lowest, highest, span, limit and those of the conditions.
-- Rows: lines of tasks (whole tasks, where the word task_line says so). Index: the primary key: a
-- limit of its own makes the inner part a walk along it whatever the conditions are; what is inserted between the look
-- at the stretch and this one must not push out the lowest.
SELECT {{task_line}}
FROM (SELECT * FROM dibs_tasks WHERE id BETWEEN %(lowest)s AND %(highest)s ORDER BY id DESC LIMIT {{span}}) AS task
WHERE task.id > 0 {{conditions}}
ORDER BY task.id DESC LIMIT {{limit}}
