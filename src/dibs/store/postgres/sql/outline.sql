-- Promise: what never changes of the workflow's first steps, in the order in which they were added. Parameters: id, limit.
-- Rows: (task_id, name, kind, type). Index: dibs_steps_names, and the primary key of the tasks.
-- The steps of the workflow come first, materialized, and their tasks one by one (OFFSET 0): for some in order PostgreSQL
-- would rather read the steps of all workflows, and for many of them all tasks.
WITH own AS MATERIALIZED (SELECT task_id, name, kind FROM dibs_steps WHERE workflow_id = %(id)s)
SELECT step.task_id, step.name, step.kind, task.type
FROM (SELECT * FROM own ORDER BY task_id LIMIT {{limit}}) AS step
CROSS JOIN LATERAL (SELECT type FROM dibs_tasks WHERE id = step.task_id OFFSET 0) AS task
ORDER BY step.task_id
