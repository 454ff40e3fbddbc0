-- Promise: workflows that run but have nothing that could run wait for their finalization. Parameters: now. Rows: (id).
-- Derived from the steps themselves, whatever the counters say; a step that has ended
-- without its workflow being told is for missed_steps.sql. A sub-workflow that has not begun is left alone.
UPDATE dibs_workflows SET active = 0, due_at = :now
WHERE state = 'running' AND due_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
                  WHERE step.workflow_id = dibs_workflows.id AND step.passed IS NULL
                    AND +task.state <> 'blocked')
  AND (step_of IS NULL OR EXISTS (SELECT 1 FROM dibs_tasks AS gate WHERE gate.id = step_of AND +gate.state = 'claimed'))
RETURNING id
