-- Promise: the scheduled tasks, up to `limit`: less than that are all of them. Parameters: limit.
-- Rows: (id). Index: dibs_tasks_due, read as it lies (the order keeps the planner from anything else).
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'scheduled'
ORDER BY task.run_at LIMIT {{limit}}
