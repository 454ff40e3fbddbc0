-- Finalization: the last decision about a workflow, made by one processor at a time.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: due_finalizations
-- Promise: up to `limit` workflows that wait for their finalization and that no processor holds, the longest wait
-- first.
-- Parameters: limit, now. Rows: (id). Index: dibs_workflows_due.
{{with_moment}}
SELECT id FROM dibs_workflows {{indexed_by: dibs_workflows_due}}
WHERE due_at IS NOT NULL AND (finalization_until IS NULL OR finalization_until <= {{now}})
ORDER BY due_at LIMIT {{limit}}

-- name: first_failure
-- Promise: the step that failed first in this workflow. Parameters: id. Rows: (name, task_id, state, error); at most
-- one.
SELECT step.name, task.id, task.state, task.error
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.kind <> 'finalizer' AND NOT step.passed AND task.state IN ('failed', 'cancelled')
ORDER BY task.state = 'failed' DESC, task.finished_at, task.id
LIMIT 1

-- name: finalization_attempts
-- Promise: the newest recorded requests to finalize the workflow, newest first. Parameters: id. Words: limit.
-- Rows: (id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at).
-- Index: dibs_finalization_attempts_workflow.
SELECT id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at
FROM dibs_finalization_attempts WHERE workflow_id = :id ORDER BY id DESC LIMIT {{limit}}
