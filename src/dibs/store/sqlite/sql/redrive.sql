-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Parameters: queue, type, error (text in its type and message); each may be NULL, limit, now. Rows: history columns.
-- Index: dibs_tasks_finished.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    {{fresh_keys: dibs_tasks.max_attempts}}
WHERE id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_finished
    WHERE state IN ('completed', 'failed', 'cancelled') AND state = 'failed'
      AND (:queue IS NULL OR queue = :queue) AND (:type IS NULL OR type = :type)
      AND (:error IS NULL OR instr(json_extract(error, '$.type') || ': ' || json_extract(error, '$.message'), :error) > 0)
    ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'retried', 'failed', state, NULL, token, NULL
