-- Promise: the tasks of the dead letter, up to `limit`, the newest failures first: less than that are all of them.
-- Parameters: limit. Rows: (id). Index: dibs_tasks_dead, from its end.
SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_dead WHERE state = 'failed' AND set_aside IS NULL
ORDER BY finished_at DESC LIMIT {{limit}}
