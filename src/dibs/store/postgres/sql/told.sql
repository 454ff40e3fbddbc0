-- Promise: how the claims with these tokens ended, for a worker that asks again because the answer was lost.
-- Parameters: said (a JSON array of objects with id, token).
-- Rows: (task_id, token, event, to_state, worker_id, detail). Index: dibs_history_task.
SELECT past.task_id, past.token, past.event, past.to_state, past.worker_id, past.detail
FROM json_to_recordset(%(said)s::json) AS asked (id bigint, token bigint)
JOIN dibs_history AS past ON past.task_id = asked.id AND past.token = asked.token
WHERE past.event IN ('completed', 'failed', 'released', 'cancelled')
ORDER BY past.id
