-- Promise: up to `limit` tasks of the dead letter that match are pending again, the oldest failures first.
-- Steps go on with their workflow (see dead_steps.sql).
-- Parameters: queue, type, error (text in its type and message), each if given; now. Words: conditions, limit.
-- Rows: history columns.
-- Index: dibs_tasks_dead.
UPDATE dibs_tasks
SET state = 'pending', attempts = 0, cancel_requested = 0, run_at = :now, ready_at = :now, finished_at = NULL,
    worker_id = NULL, claimed_at = NULL,
    {{fresh_keys: dibs_tasks.max_attempts}}
WHERE id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_dead
    WHERE state = 'failed' AND set_aside IS NULL AND workflow_id IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'retried', 'failed', state, NULL, token, NULL
