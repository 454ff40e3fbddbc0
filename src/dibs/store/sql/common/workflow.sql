-- Workflows: their steps, how they advance, stop and run again.
-- Locks: those of the engine, see the file of the same theme there.

-- name: workflow_with_key
-- Promise: the workflow that has this key and was started in exactly these queues. Parameters: key, queues (JSON).
-- Rows: (key_content, workflow columns). Index: dibs_workflows_key.
-- A statement of its own: it must see what another committed while `start_workflow` waited for it.
SELECT workflow.key_content, {{workflow}} FROM dibs_workflows AS workflow
WHERE workflow.key = :key AND workflow.key_queues = :queues

-- name: add_queues
-- Promise: the workflow's tasks are in these queues, and so are those of its root. Parameters: id, queues. Rows: none.
UPDATE dibs_workflows SET queues = :queues WHERE id = :id

-- name: set_finalizer
-- Promise: this task is the workflow's finalizer. Parameters: id, task_id. Rows: none.
UPDATE dibs_workflows SET finalizer_id = :task_id WHERE id = :id

-- name: get_workflow
-- Promise: the workflow. Parameters: id. Rows: workflow columns; none if there is none.
SELECT {{workflow}} FROM dibs_workflows AS workflow WHERE workflow.id = :id

-- name: workflow_of_step
-- Promise: the sub-workflow that this step stands for. Parameters: id. Rows: (id).
SELECT id FROM dibs_workflows WHERE step_of = :id

-- name: sub_workflows
-- Promise: the sub-workflows that are steps of this workflow and have not ended. Parameters: id. Rows: (id).
SELECT sub.id
FROM dibs_steps AS step
JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.workflow_id = :id AND step.kind = 'workflow' AND sub.state IN ('running', 'finalizing')
ORDER BY sub.id

-- name: children
-- Promise: the steps that wait for this one, also those that were given up. Parameters: id. Rows: (task_id).
SELECT child_id FROM dibs_edges WHERE parent_id = :id

-- name: unpassed_steps
-- Promise: the workflow's steps that have ended and not passed. Parameters: id. Rows: (task_id, kind, waits, state).
SELECT step.task_id, step.kind, step.waits, task.state
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND NOT step.passed
ORDER BY step.task_id

-- name: results
-- Promise: what the parents of this step came to. Parameters: id. Index: dibs_edges_child.
-- Rows: (task_id, name, type, state, result, error, queue).
SELECT parent.task_id, parent.name, task.type, task.state, task.result, task.error, task.queue
FROM dibs_edges AS edge
JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
JOIN dibs_tasks AS task ON task.id = parent.task_id
WHERE edge.child_id = :id
ORDER BY parent.task_id

-- name: last_results
-- Promise: what those steps of the workflow came to that no other waits for. Parameters: id. Rows as in `results`.
SELECT step.task_id, step.name, task.type, task.state, task.result, task.error, task.queue
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.kind <> 'finalizer'
  AND NOT EXISTS (SELECT 1 FROM dibs_edges AS edge WHERE edge.parent_id = step.task_id)
ORDER BY step.task_id
