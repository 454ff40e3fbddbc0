-- Promise: workflows that run but have nothing that could run wait for their finalization. Parameters: now. Rows: (id).
-- Derived from the steps themselves, whatever the counters say; a step that has ended
-- without its workflow being told is for missed_steps.sql. A sub-workflow that has not begun is left alone.
-- Safe: rows that somebody changes right now are skipped.
WITH {{moment}},
forgotten AS MATERIALIZED (
    SELECT workflow.id FROM dibs_workflows AS workflow
    WHERE workflow.state = 'running' AND workflow.due_at IS NULL
      AND NOT EXISTS (SELECT FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
                      WHERE step.workflow_id = workflow.id AND step.passed IS NULL
                        AND (task.state || '') <> 'blocked')
      AND (workflow.step_of IS NULL
           OR EXISTS (SELECT FROM dibs_tasks AS gate WHERE gate.id = workflow.step_of AND (gate.state || '') = 'claimed'))
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE dibs_workflows AS workflow SET active = 0, due_at = moment.now
FROM forgotten, moment
WHERE workflow.id = forgotten.id
RETURNING workflow.id
