-- Promise: the tasks of the dead letter, up to `limit`, the newest failures first: less than that are all of them.
-- Parameters: limit. Rows: (id). Index: dibs_tasks_dead, from its end.
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'failed' AND task.set_aside IS NULL
ORDER BY task.finished_at DESC LIMIT {{limit}}
