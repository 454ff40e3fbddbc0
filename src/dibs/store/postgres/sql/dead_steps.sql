-- Promise: up to `limit` steps of the dead letter that match, the oldest first; without those whose failure was
-- ignored, since their workflow has gone on.
-- Parameters: those of redrive.sql; queues, if only workflows of these. Rows: (task_id, workflow_id).
-- Index: dibs_steps_failed: the dead letter may be full of tasks that are no steps.
SELECT task.id, step.workflow_id FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE NOT step.passed AND (task.state || '') = 'failed' AND task.set_aside IS NULL {{conditions}}
ORDER BY step.task_id LIMIT {{limit}}
