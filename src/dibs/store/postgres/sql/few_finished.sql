-- Promise: the tasks in this final state, up to `limit`, the newest endings first: less than that are all of them.
-- Parameters: state, limit. Rows: (id). Index: dibs_tasks_finished, from its end.
SELECT task.id FROM dibs_tasks AS task
WHERE task.state IN ('completed', 'failed', 'cancelled') AND task.state = %(state)s
ORDER BY task.finished_at DESC LIMIT {{limit}}
