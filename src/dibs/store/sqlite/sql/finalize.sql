-- Finalization: the last decision about a workflow, made by one processor at a time.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: claim_finalization
-- Promise: the finalization of this workflow belongs to this processor, under the next token, or the same where it has
-- it.
-- Parameters: id, processor, lease, now. Rows: (token, lease_until).
-- Safe: the write lock is held since before the workflow was read, so no other processor can claim in between.
UPDATE dibs_workflows
SET finalization_token = finalization_token + NOT (coalesce(finalization_until, 0) > :now AND finalization_by IS :processor),
    finalization_by = :processor, finalization_until = :now + :lease
WHERE id = :id AND state = 'running'
  AND (finalization_until IS NULL OR finalization_until <= :now OR finalization_by = :processor)
RETURNING finalization_token, finalization_until

-- name: renew_finalization
-- Promise: the claim is extended, if this processor has it under this token. Parameters: id, processor, token, lease,
-- now.
-- Rows: (token, lease_until); none if it has not. A lease that ran out is extended too, if no other claim was granted
-- since.
-- Safe: the condition names the processor, the token and the state, under the write lock.
UPDATE dibs_workflows SET finalization_until = :now + :lease
WHERE id = :id AND finalization_by = :processor AND finalization_token = :token AND state = 'running'
RETURNING finalization_token, finalization_until

-- name: release_finalization
-- Promise: the claim is given up, if this processor has it under this token. Parameters: id, processor, token.
-- Rows: (released); none if it has not. Safe: the condition names the processor and the token, under the write lock.
UPDATE dibs_workflows SET finalization_by = NULL, finalization_until = NULL
WHERE id = :id AND finalization_by = :processor AND finalization_token = :token
RETURNING 1

-- name: execution_context
-- Promise: how many steps of the workflow are in each state, and the action that follows from that. Parameters: id.
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

-- name: note_finalization
-- Promise: a request to finalize is recorded. PostgreSQL does that in its function.
-- Parameters: id, processor, claimed, reason, state, message, already_claimed_by, token, now. Rows: none.
INSERT INTO dibs_finalization_attempts
    (workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at)
VALUES (:id, :processor, :claimed, :reason, :state, :message, :already_claimed_by, :token, :now)

-- name: leave_finalization
-- Promise: nothing was to be finalized: the claim is given up, and the workflow is checked again when a step ends, or
-- at the next upkeep if nothing is active. Parameters: id. Rows: none.
UPDATE dibs_workflows
SET finalization_by = NULL, finalization_until = NULL, due_at = CASE WHEN active = 0 THEN due_at END
WHERE id = :id
