-- Promise: of these steps those that have ended are settled, each once: passed, if it was completed or its failure is
-- ignored and nothing was given up. Parameters: ids, given_up.
-- Rows: (task_id, workflow_id, kind, on_failure, waits, passed, state).
-- Safe: `passed IS NULL` lets nobody count a step twice, and the workflow is held.
UPDATE dibs_steps
SET passed = NOT :given_up AND (task.state = 'completed' OR (dibs_steps.on_failure = 'ignore' AND dibs_steps.kind <> 'finalizer'))
FROM (SELECT id, state FROM dibs_tasks
      WHERE id IN (SELECT value FROM json_each(:ids)) AND +state IN ('completed', 'failed', 'cancelled')) AS task
WHERE task_id = task.id AND passed IS NULL
RETURNING task_id, workflow_id, kind, on_failure, waits, passed, (SELECT state FROM dibs_tasks WHERE id = task_id)
