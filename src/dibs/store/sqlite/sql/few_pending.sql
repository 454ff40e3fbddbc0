-- Promise: the pending tasks, of this queue (and this type in it) where one is given, up to `limit`: less than that are
-- all of them. Parameters: limit and those of the conditions. Rows: (id).
-- Index: dibs_tasks_by_age, read as it lies.
SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age WHERE state = 'pending' {{conditions}}
ORDER BY queue, type, attempts_left, id LIMIT {{limit}}
