-- Promise: the claimed tasks, up to `limit`: less than that are all of them. Parameters: limit.
-- Rows: (id). Index: dibs_tasks_leases, read as it lies (the order keeps the planner from anything else).
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'claimed'
ORDER BY task.lease_until LIMIT {{limit}}
