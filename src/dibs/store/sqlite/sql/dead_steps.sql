-- Promise: up to `limit` steps of the dead letter that match, the oldest first; without those whose failure was
-- ignored, since their workflow has gone on.
-- Parameters: those of redrive.sql; queues, if only workflows of these. Rows: (task_id, workflow_id).
-- Index: dibs_steps_failed: the dead letter may be full of tasks that are no steps.
SELECT id, step.workflow_id FROM dibs_steps AS step INDEXED BY dibs_steps_failed JOIN dibs_tasks ON id = step.task_id
WHERE step.passed = 0 AND +state = 'failed' AND set_aside IS NULL {{conditions}}
ORDER BY step.task_id LIMIT {{limit}}
