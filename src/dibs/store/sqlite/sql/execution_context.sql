-- Promise: how the workflow's steps stand, and what follows from that. Parameters: id.
-- Rows: (id, state, steps, pending, scheduled, claimed, blocked, completed, failed, cancelled, passed, failures,
-- completion percentage, execution status, recommended action); none if there is no such workflow.
WITH counted AS (
    SELECT workflow.id, workflow.state, workflow.steps, workflow.active, workflow.ended, workflow.failures,
           total(task.state = 'pending') AS pending, total(task.state = 'scheduled') AS scheduled,
           total(task.state = 'claimed') AS claimed, total(task.state = 'blocked') AS blocked,
           total(task.state = 'completed') AS completed, total(task.state = 'failed') AS failed,
           total(task.state = 'cancelled') AS cancelled
    FROM dibs_workflows AS workflow
    LEFT JOIN dibs_steps AS step ON step.workflow_id = workflow.id AND step.kind <> 'finalizer'
    LEFT JOIN dibs_tasks AS task ON task.id = step.task_id
    WHERE workflow.id = :id
    GROUP BY workflow.id
),
judged AS (
    SELECT *, CASE WHEN active > 0 THEN CASE WHEN pending > 0 THEN 'has_ready_steps' WHEN claimed > 0 THEN 'processing'
                                             ELSE 'waiting_for_retry' END
                   WHEN failures > 0 THEN 'blocked_by_failures'
                   WHEN ended >= steps THEN 'all_complete'
                   ELSE 'waiting_for_dependencies' END AS status
    FROM counted
)
SELECT id, state, steps, pending, scheduled, claimed, blocked, completed, failed, cancelled, ended - failures, failures,
       CASE WHEN steps = 0 THEN 100.0 ELSE round(100.0 * (ended - failures) / steps, 1) END, status,
       CASE status WHEN 'blocked_by_failures' THEN 'fail_workflow' WHEN 'all_complete' THEN 'complete_workflow'
                   ELSE 'recheck_later' END
FROM judged
