-- Promise: the pending tasks, of this queue (and this type in it) where one is given, up to `limit`: less than that are
-- all of them. Parameters: limit and those of the conditions. Rows: (id).
-- Index: dibs_tasks_by_age, read as it lies (the order keeps the planner from anything else).
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'pending' {{conditions}}
ORDER BY task.queue, task.type, task.attempts_left, task.id LIMIT {{limit}}
