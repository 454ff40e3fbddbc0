-- Workflows: insert, advance, stop, end and reopen workflows and their steps.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: start_workflow
-- Promise: a new workflow, unless a workflow started in the same queues has its key (no row then). Its steps follow
-- in the same transaction.
-- Parameters: root_id, step_of, name, key, key_content, on_failure, finalize_when, queues, allowed, deadline, now. Rows:
-- (id).
-- Index: dibs_workflows_key decides which workflow owns a key. The deadline of a sub-workflow is set when the
-- sub-workflow begins (see `begin_workflows`).
{{with_moment}}
INSERT INTO dibs_workflows (root_id, step_of, name, key, key_content, key_queues, on_failure, finalize_when, queues,
                            created_at, allowed, deadline)
VALUES (:root_id, :step_of, :name, :key, :key_content,
        CASE WHEN CAST(:key AS text) IS NOT NULL THEN CAST(:queues AS text) END, :on_failure, :finalize_when, :queues, {{now}}, :allowed,
        CASE WHEN CAST(:step_of AS bigint) IS NULL
             THEN coalesce(CAST(:deadline AS bigint), {{now}} + CAST(:allowed AS bigint))
             ELSE CAST(:deadline AS bigint) END)
ON CONFLICT (key, key_queues) WHERE key IS NOT NULL DO NOTHING
RETURNING id

-- name: workflow_with_key
-- Promise: the workflow that has this key and was started in exactly these queues. Parameters: key, queues (JSON).
-- Rows: (key_content, workflow columns). Index: dibs_workflows_key.
-- A separate statement: it must see the row that another transaction committed while `start_workflow` waited.
SELECT workflow.key_content, {{workflow}} FROM dibs_workflows AS workflow
WHERE workflow.key = :key AND workflow.key_queues = :queues

-- name: add_queues
-- Promise: the workflow's list of queues is this one. The caller does the same for the parent of a sub-workflow.
-- Parameters: id, queues. Rows: none.
UPDATE dibs_workflows SET queues = :queues WHERE id = :id

-- name: set_finalizer
-- Promise: this task is the workflow's finalizer. Parameters: id, task_id. Rows: none.
UPDATE dibs_workflows SET finalizer_id = :task_id WHERE id = :id

-- name: find_steps
-- Promise: the steps of the workflow that have one of these names. Parameters: id, keys (the names).
-- Rows: (name, task_id, passed, queue). Index: dibs_steps_names.
SELECT step.name, step.task_id, step.passed, task.queue
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.name {{in_text: keys}}

-- name: steps_among
-- Promise: which of these tasks are steps, and the root of the tree of each. Parameters: ids. Rows: (task_id, root).
SELECT task.id, coalesce(workflow.root_id, workflow.id)
FROM dibs_tasks AS task JOIN dibs_workflows AS workflow ON workflow.id = task.workflow_id
WHERE task.id {{in: ids}}

-- name: roots_of
-- Promise: the roots of the trees that these workflows belong to. Parameters: ids. Rows: (id, root).
SELECT id, coalesce(root_id, id) FROM dibs_workflows WHERE id {{in: ids}}

-- name: get_workflow
-- Promise: the workflow. Parameters: id. Rows: workflow columns; none if there is none.
SELECT {{workflow}} FROM dibs_workflows AS workflow WHERE workflow.id = :id

-- name: step
-- Promise: these tasks as steps of their workflows. Parameters: ids.
-- Rows: (task_id, workflow_id, name, kind, passed, the workflow's state, stopping, on_failure, root).
SELECT step.task_id, step.workflow_id, step.name, step.kind, step.passed, workflow.state, workflow.stopping,
       workflow.on_failure, coalesce(workflow.root_id, workflow.id)
FROM dibs_steps AS step JOIN dibs_workflows AS workflow ON workflow.id = step.workflow_id
WHERE step.task_id {{in: ids}}

-- name: workflows_of_steps
-- Promise: the sub-workflows that these steps represent. Parameters: ids. Rows: (id). Index: dibs_workflows_step.
SELECT id FROM dibs_workflows WHERE step_of {{in: ids}} ORDER BY id

-- name: sub_workflows
-- Promise: the sub-workflows that are steps of this workflow and have not ended. Parameters: id. Rows: (id).
SELECT sub.id
FROM dibs_steps AS step
JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.workflow_id = :id AND step.kind = 'workflow' AND sub.state IN ('running', 'finalizing')
ORDER BY sub.id

-- name: children
-- Promise: the steps that wait for this step, cancelled ones too. Parameters: id. Rows: (task_id).
SELECT child_id FROM dibs_edges WHERE parent_id = :id

-- name: descendants
-- Promise: whether one of these steps waits for the step `id`, directly or through other steps. Parameters: ids, id.
-- Rows: (id); none if none does. Index: dibs_edges_child. The cost is that of the edges above them, up to steps that
-- have passed.
WITH RECURSIVE above (id) AS (
    SELECT task_id FROM dibs_steps WHERE task_id {{in: ids}}
    UNION
    SELECT edge.parent_id FROM above JOIN dibs_edges AS edge ON edge.child_id = above.id
    JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id AND parent.passed IS NOT TRUE
)
SELECT id FROM above WHERE id = :id LIMIT 1

-- name: ignore_failures
-- Promise: these failed steps are not dead letters: their workflows continued without them. Parameters: ids, now, by.
-- Rows: history columns. Index: the primary key.
-- Safe: the workflow is locked, and `decide_steps` has decided each of these steps once, in the same transaction.
{{change}}
UPDATE dibs_tasks SET set_aside = 'ignored'
WHERE id {{in: ids}} AND {{unindexed: state}} = 'failed'
RETURNING id, 'ignored', 'failed', state, NULL, token, NULL
{{note_change}}

-- name: begin_workflows
-- Promise: the allowed time of these sub-workflows runs from now on. Parameters: ids, now. Rows: none.
{{with_moment}}
UPDATE dibs_workflows SET deadline = {{now}} + allowed WHERE id {{in: ids}} AND allowed IS NOT NULL

-- name: begin_steps
-- Promise: the steps of these sub-workflows that have no parent left to wait for wait for nothing any more; cancelled
-- steps too, since a client may retry them. Parameters: ids. Rows: (task_id, workflow_id, kind, waits, passed).
UPDATE dibs_steps AS step SET waits = 0
WHERE step.workflow_id {{in: ids}} AND step.kind <> 'finalizer' AND step.waits > 0
  AND NOT EXISTS (SELECT 1 FROM dibs_edges AS edge JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
                  WHERE edge.child_id = step.task_id AND parent.passed IS NOT TRUE)
RETURNING task_id, workflow_id, kind, waits, passed

-- name: stop_workflow
-- Promise: no further step of this workflow begins; the first reason stays, but for 'failed', which lets running steps
-- finish. A finalizer that runs after failures too is not stopped with its workflow: nothing else of the workflow runs.
-- Parameters: id, why. Rows: (id); none if the workflow had ended, was stopping or has such a finalizer running.
UPDATE dibs_workflows SET stopping = :why
WHERE id = :id AND (stopping IS NULL OR (stopping = 'failed' AND CAST(:why AS text) <> 'failed'))
  AND (state = 'running' OR (state = 'finalizing' AND finalize_when = 'success'))
RETURNING id

-- name: cancel_steps
-- Promise: the workflow's steps that wait in this state are cancelled, a finalizer only after it has begun.
-- Parameters: id, from_state, now, by. Rows: history columns. Index: dibs_steps_open. Safe: the workflow is locked.
{{change}}
UPDATE dibs_tasks SET state = 'cancelled', finished_at = {{now}}, parked = false
WHERE id {{in_select: SELECT task_id FROM dibs_steps
                        WHERE workflow_id = :id AND passed IS NULL
                          AND (kind <> 'finalizer' OR EXISTS (
                              SELECT 1 FROM dibs_workflows AS workflow
                              WHERE workflow.id = :id AND workflow.state = 'finalizing'))}}
  AND {{unindexed: state}} = :from_state
RETURNING id, 'cancelled', CAST(:from_state AS text), state, NULL, token, '{"by":"workflow"}'
{{note_change}}

-- name: end_workflow
-- Promise: the workflow has ended in this state, once. Parameters: id, state, error, now.
-- Rows: (step_of); none if the workflow had ended before. Safe: the tree is locked, and `state` prevents a second end.
{{with_moment}}
UPDATE dibs_workflows
SET state = :state, error = :error, finished_at = {{now}}, due_at = NULL, finalization_by = NULL,
    finalization_until = NULL
WHERE id = :id AND state IN ('running', 'finalizing')
RETURNING step_of

-- name: finish_sub_workflow_step
-- Promise: the step that represents a sub-workflow ends as the sub-workflow did, also one that was cancelled before it
-- began. Parameters: id, from_state (claimed or blocked), state, result, error, now, by. Rows: history columns.
-- Safe: the tree is locked, and a workflow ends once.
{{change}}
UPDATE dibs_tasks
SET state = :state, attempts = attempts + CASE WHEN CAST(:from_state AS text) = 'claimed' THEN 1 ELSE 0 END,
    result = :result, error = :error, finished_at = {{now}}
WHERE id = :id AND {{unindexed: state}} = :from_state
RETURNING id, state, CAST(:from_state AS text), state, worker_id, token, error
{{note_change}}

-- name: reopen_workflow
-- Promise: an ended workflow runs again. Parameters: id, now. Rows: (id); none if it has not failed or been cancelled.
-- A deadline in seconds starts again, that of a sub-workflow with its step (see `begin_workflows`). A deadline at a
-- fixed time is removed if it is past: the workflow could only fail again. A workflow that is being pruned stays as it
-- is.
{{with_moment}}
UPDATE dibs_workflows
SET state = 'running', stopping = NULL, error = NULL, finished_at = NULL, due_at = NULL,
    deadline = CASE WHEN allowed IS NOT NULL THEN CASE WHEN step_of IS NULL THEN {{now}} + allowed END
                    WHEN deadline > {{now}} THEN deadline END
WHERE id = :id AND state IN ('failed', 'cancelled') AND stopping {{differs_from}} 'pruned'
RETURNING id

-- name: unpassed_steps
-- Promise: the workflow's steps that have ended and not passed. Parameters: id. Rows: (task_id, kind, waits, state).
SELECT step.task_id, step.kind, step.waits, task.state
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND NOT step.passed
ORDER BY step.task_id

-- name: reopen_steps
-- Promise: these steps are open again: blocked, with all their attempts. `ready_steps` follows for those that wait for
-- no parent, with the steps' own `expires_in`. A failed step does not wait for its backoff. Parameters: ids, from_state, now, by. Rows: history columns.
-- Safe: the workflow is locked.
{{change}}
UPDATE dibs_tasks
SET state = 'blocked', attempts = 0, cancel_requested = false, finished_at = NULL, worker_id = NULL, claimed_at = NULL,
    set_aside = NULL, expires_at = NULL,
    run_at = CASE WHEN CAST(:from_state AS text) = 'failed' THEN {{now}} ELSE run_at END
WHERE id {{in: ids}} AND {{unindexed: state}} = :from_state
RETURNING id, 'retried', CAST(:from_state AS text), state, NULL, token, NULL
{{note_change}}

-- name: undecide_steps
-- Promise: these steps have not ended; a finalizer waits again. Parameters: ids. Rows: none.
UPDATE dibs_steps SET passed = NULL, waits = CASE kind WHEN 'finalizer' THEN 1 ELSE waits END
WHERE task_id {{in: ids}}

-- name: expired_workflows
-- Promise: up to `limit` workflows past their deadline that have not been stopped for it, nor by a client, and whose
-- finalizer, if it runs already, is stopped by a deadline (see `stop_workflow`).
-- Parameters: limit, now. Rows: (id). Index: dibs_workflows_deadline.
{{with_moment}}
SELECT id FROM dibs_workflows {{indexed_by: dibs_workflows_deadline}}
WHERE state IN ('running', 'finalizing') AND deadline IS NOT NULL AND deadline <= {{now}}
  AND (state = 'running' OR finalize_when = 'success') AND (stopping IS NULL OR stopping = 'failed')
ORDER BY deadline LIMIT {{limit}}

-- name: missed_steps
-- Promise: up to `limit` steps that have ended and are not decided (`decide_steps`). Parameters: limit. Rows:
-- (task_id).
-- Index: dibs_steps_open, so that the cost depends on the open steps, not on all that have ended. Only programs that do
-- not know workflows leave such steps behind.
SELECT step.task_id FROM dibs_steps AS step {{indexed_by: dibs_steps_open}}
JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.passed IS NULL AND {{unindexed: task.state}} IN ('completed', 'failed', 'cancelled')
LIMIT {{limit}}

-- name: missed_finalizations
-- Promise: workflows that run without a step that could run wait for their finalization. Parameters: now. Rows: (id).
-- The steps themselves decide, not the counters; `missed_steps` finds steps that have ended and are not decided. A
-- sub-workflow that has not begun is left out. Safe: rows that another client is changing are skipped.
{{with_moment}}
UPDATE dibs_workflows SET active = 0, due_at = {{now}}
WHERE id {{in_select:
    SELECT workflow.id FROM dibs_workflows AS workflow
    WHERE workflow.state = 'running' AND workflow.due_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
                      WHERE step.workflow_id = workflow.id AND step.passed IS NULL
                        AND {{unindexed: task.state}} <> 'blocked')
      AND (workflow.step_of IS NULL
           OR EXISTS (SELECT 1 FROM dibs_tasks AS gate
                      WHERE gate.id = workflow.step_of AND {{unindexed: gate.state}} = 'claimed'))
    {{skip_locked}}}}
RETURNING id

-- name: results
-- Promise: the results of the parents of this step. Parameters: id. Index: dibs_edges_child.
-- Rows: (task_id, name, type, state, result, error, queue).
SELECT parent.task_id, parent.name, task.type, task.state, task.result, task.error, task.queue
FROM dibs_edges AS edge
JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
JOIN dibs_tasks AS task ON task.id = parent.task_id
WHERE edge.child_id = :id
ORDER BY parent.task_id

-- name: last_results
-- Promise: the results of the workflow's last steps, for which no other step waits. Parameters: id. Rows as in
-- `results`.
SELECT step.task_id, step.name, task.type, task.state, task.result, task.error, task.queue
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.kind <> 'finalizer'
  AND NOT EXISTS (SELECT 1 FROM dibs_edges AS edge WHERE edge.parent_id = step.task_id)
ORDER BY step.task_id
