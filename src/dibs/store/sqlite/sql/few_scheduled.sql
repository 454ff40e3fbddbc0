-- Promise: the scheduled tasks, up to `limit`: less than that are all of them. Parameters: limit.
-- Rows: (id). Index: dibs_tasks_due, read as it lies.
SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_due WHERE state = 'scheduled'
ORDER BY run_at LIMIT {{limit}}
