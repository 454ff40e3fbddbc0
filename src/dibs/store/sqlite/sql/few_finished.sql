-- Promise: the tasks in this final state, up to `limit`, the newest endings first: less than that are all of them.
-- Parameters: state, limit. Rows: (id). Index: dibs_tasks_finished, from its end.
SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_finished
WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state
ORDER BY finished_at DESC LIMIT {{limit}}
