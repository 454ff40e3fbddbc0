-- Promise: how the claim with this token ended, for a worker that asks again because the answer was lost.
-- Parameters: id, token. Rows: (task_id, token, event, to_state, worker_id, detail). Index: dibs_history_task.
SELECT task_id, token, event, to_state, worker_id, detail FROM dibs_history
WHERE task_id = :id AND token = :token AND event IN ('completed', 'failed', 'released', 'cancelled')
ORDER BY id
