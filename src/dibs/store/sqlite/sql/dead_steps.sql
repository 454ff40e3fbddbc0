-- Promise: up to `limit` steps of the dead letter that match, the oldest failures first; without those whose failure was
-- ignored, since their workflow has gone on.
-- Parameters: those of redrive.sql. Rows: (task_id, workflow_id). Index: dibs_tasks_dead_steps.
SELECT id, workflow_id FROM dibs_tasks INDEXED BY dibs_tasks_dead_steps
WHERE state = 'failed' AND workflow_id IS NOT NULL AND finished_at > 0
  AND EXISTS (SELECT 1 FROM dibs_steps AS step WHERE step.task_id = dibs_tasks.id AND NOT step.passed) {{conditions}}
ORDER BY finished_at LIMIT {{limit}}
