-- Promise: how the claims with these tokens ended, for a worker that asks again because the answer was lost.
-- Parameters: arrays of id, token. Rows: (task_id, token, event, to_state, worker_id, detail). Index: dibs_history_task.
SELECT past.task_id, past.token, past.event, past.to_state, past.worker_id, past.detail
FROM unnest(%(id)s::bigint[], %(token)s::bigint[]) AS asked (id, token)
JOIN dibs_history AS past ON past.task_id = asked.id AND past.token = asked.token
WHERE past.event IN ('completed', 'failed', 'released', 'cancelled')
ORDER BY past.id
