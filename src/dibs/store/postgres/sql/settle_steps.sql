-- Promise: of these steps those that have ended are settled, each once: passed, if it was completed or its failure is
-- ignored and nothing was given up. Parameters: ids, given_up.
-- Rows: (task_id, workflow_id, kind, on_failure, waits, passed, state).
-- Safe: `passed IS NULL` lets nobody count a step twice, and the workflow is held.
UPDATE dibs_steps AS step
SET passed = NOT %(given_up)s AND (task.state = 'completed' OR (step.on_failure = 'ignore' AND step.kind <> 'finalizer'))
FROM dibs_tasks AS task
WHERE step.task_id = ANY(%(ids)s::bigint[]) AND step.passed IS NULL
  AND task.id = step.task_id AND (task.state || '') IN ('completed', 'failed', 'cancelled')
RETURNING step.task_id, step.workflow_id, step.kind, step.on_failure, step.waits, step.passed, task.state
