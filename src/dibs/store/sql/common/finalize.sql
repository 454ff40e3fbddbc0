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
-- Promise: the step that failed first in this workflow. A step that expired comes before the steps that were cancelled
-- with it. Parameters: id. Rows: (name, task_id, state, error); at most one.
SELECT step.name, task.id, task.state, task.error
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.kind <> 'finalizer' AND NOT step.passed AND task.state IN ('failed', 'cancelled')
ORDER BY task.state = 'failed' DESC, task.finished_at, task.error IS NULL, task.id
LIMIT 1

-- name: begin_finalizer
-- Promise: the workflow's steps are done and its finalizer begins; the right to finalize passes to the finalizer's own
-- claim. `error`: with which the workflow ends after its finalizer; NULL after success. Parameters: id, error.
-- Rows: (finalizer_id). Safe: the tree is locked, and `state` prevents a second begin.
UPDATE dibs_workflows
SET state = 'finalizing', error = :error, due_at = NULL, finalization_by = NULL, finalization_until = NULL
WHERE id = :id AND state = 'running' AND finalizer_id IS NOT NULL
RETURNING finalizer_id

-- name: begin_finalizer_step
-- Promise: the finalizer has no parent left to wait for. Parameters: id. Rows: none.
UPDATE dibs_steps SET waits = 0 WHERE task_id = :id

-- name: cancel_finalizer
-- Promise: a finalizer that has not begun is cancelled: its workflow has ended without it. Parameters: id, now, by.
-- Rows: history columns. Safe: the tree is locked.
{{change}}
UPDATE dibs_tasks SET state = 'cancelled', finished_at = {{now}}
WHERE id = :id AND {{unindexed: state}} = 'blocked'
RETURNING id, 'cancelled', 'blocked', state, NULL, token, '{"by":"workflow"}'
{{note_change}}

-- name: retire_finalizers
-- Promise: the finalizers of these workflows that have run are not their finalizers any more: each keeps its result,
-- under another name, and another task takes its place. Parameters: ids (of the workflows).
-- Rows: (task_id, workflow_id, delay, expires_in). Safe: the tree is locked.
UPDATE dibs_steps SET name = '(finalizer, task ' || task_id || ')'
WHERE kind = 'finalizer' AND passed
  AND task_id {{in_select: SELECT finalizer_id FROM dibs_workflows WHERE id {{in: ids}}}}
RETURNING task_id, workflow_id, delay, expires_in

-- name: task_content
-- Promise: what the task with this id was enqueued with. Parameters: id.
-- Rows: (type, queue, priority, params, max_attempts, backoff_base, backoff_cap, type_version, timeout, trace, tags,
-- limits, group_key).
SELECT type, queue, priority, params, max_attempts, backoff_base, backoff_cap, type_version, timeout, trace, tags,
       limits, group_key
FROM dibs_tasks WHERE id = :id

-- name: finalization_attempts
-- Promise: the newest recorded requests to finalize the workflow, newest first. Parameters: id. Words: limit.
-- Rows: (id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at).
-- Index: dibs_finalization_attempts_workflow.
SELECT id, workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at
FROM dibs_finalization_attempts WHERE workflow_id = :id ORDER BY id DESC LIMIT {{limit}}
