-- Promise: up to `limit` steps of the dead letter that match, the oldest failures first; without those whose failure was
-- ignored, since their workflow has gone on.
-- Parameters: those of redrive.sql. Rows: (task_id, workflow_id). Index: dibs_tasks_dead_steps.
SELECT task.id, task.workflow_id FROM dibs_tasks AS task
WHERE task.state = 'failed' AND task.workflow_id IS NOT NULL
  AND EXISTS (SELECT FROM dibs_steps AS step WHERE step.task_id = task.id AND NOT step.passed) {{conditions}}
ORDER BY task.finished_at LIMIT {{limit}}
