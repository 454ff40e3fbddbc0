-- Reading: tasks, lists, searches, history, and how workflows stand.
-- Locks: none; these statements read.

-- fragment: by_only
-- A condition of `dead_steps`: all tasks of its workflow, and of those that it is a part of, are in these queues.
AND EXISTS (SELECT 1 FROM dibs_workflows AS workflow
            WHERE workflow.id = (SELECT coalesce(own.root_id, own.id) FROM dibs_workflows AS own
                                 WHERE own.id = step.workflow_id)
            {{by_workflow_queues}})

-- name: waits_for
-- Promise: the parents that this step still waits for. Parameters: id, limit. Rows: (name, task_id, state, queue).
SELECT parent.name, parent.task_id, task.state, task.queue
FROM dibs_edges AS edge
JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
JOIN dibs_tasks AS task ON task.id = parent.task_id
WHERE edge.child_id = :id AND (parent.passed IS NULL OR NOT parent.passed)
ORDER BY parent.task_id LIMIT {{limit}}

-- name: stretch
-- Promise: how far the next `limit` tasks below an id, and above another, reach. Parameters: above, below, limit.
-- Rows: (highest id, lowest id, how many); one row, of NULLs and 0 where there are none. Index: the primary key.
SELECT max(id), min(id), count(*)
FROM (SELECT id FROM dibs_tasks WHERE id > :above AND id < :below ORDER BY id DESC LIMIT {{limit}}) AS stretch

-- name: at_or_below
-- Promise: the task with this id, or with the next below. Parameters: id. Rows: (id, created_at).
-- Index: the primary key.
SELECT id, created_at FROM dibs_tasks WHERE id <= :id ORDER BY id DESC LIMIT 1

-- name: with_key
-- Promise: the tasks that have this key, one for each queue that uses it. Parameters: key. Rows: (id). Index: dibs_tasks_key.
SELECT id FROM dibs_tasks WHERE key = :key

-- name: history
-- Promise: what happened to a task, in order. Parameters: id. Rows: all columns. Index: dibs_history_task.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail FROM dibs_history
WHERE task_id = :id ORDER BY id

-- name: history_after
-- Promise: a page of the history of all tasks, in order. Parameters: after, limit. Rows: all columns.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail FROM dibs_history
WHERE id > :after ORDER BY id LIMIT {{limit}}

-- name: last_entry
-- Promise: the id of the newest entry of the history, 0 where there is none. Rows: (id). Index: the primary key's end.
SELECT coalesce(max(id), 0) FROM dibs_history

-- fragment: workflow
-- The columns of a workflow, in the order that `read_workflow` expects. A fragment; the table's alias is `workflow`.
workflow.id, workflow.name, workflow.state, workflow.steps, workflow.active, workflow.ended, workflow.failures,
workflow.created_at, workflow.queues, workflow.root_id, workflow.key, workflow.deadline, workflow.finished_at,
workflow.on_failure, workflow.stopping, workflow.error, workflow.step_of, workflow.finalizer_id,
workflow.finalization_token, workflow.finalization_by, workflow.finalization_until

-- name: list_workflows
-- Promise: a page of workflows, newest first, without sub-workflows. Parameters: limit and those of the conditions.
-- Rows: workflow columns.
SELECT {{workflow}} FROM dibs_workflows AS workflow
WHERE workflow.step_of IS NULL {{conditions}}
ORDER BY workflow.id DESC LIMIT {{limit}}

-- fragment: by_workflow_cursor
-- A condition of `list_workflows`.
AND workflow.id < :workflow_cursor

-- fragment: by_workflow_floor
-- A condition of `list_workflows`.
AND workflow.id >= :workflow_floor

-- fragment: by_workflow_name
-- A condition of `list_workflows`.
AND workflow.name = :workflow_name

-- fragment: by_workflow_state
-- A condition of `list_workflows`.
AND workflow.state = :workflow_state

-- name: workflow_stretch
-- Promise: how far the next `limit` workflows below an id reach. Parameters: below, limit.
-- Rows: (lowest id, how many); one row, of NULL and 0 where there are none. Index: the primary key.
SELECT min(id), count(*)
FROM (SELECT id FROM dibs_workflows WHERE id < :below ORDER BY id DESC LIMIT {{limit}}) AS stretch

-- name: few_running_workflows
-- Promise: the newest workflows that run, up to a limit. Parameters: limit. Rows: (id). Index: dibs_workflows_running.
SELECT id FROM dibs_workflows WHERE state = 'running' ORDER BY id DESC LIMIT {{limit}}

-- name: few_ended_workflows
-- Promise: the last workflows that ended in this state, up to a limit. Parameters: state, limit. Rows: (id).
-- Index: dibs_workflows_finished, in its order: without one PostgreSQL reads all workflows for a state that few are in.
SELECT id FROM dibs_workflows WHERE state = :state AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT {{limit}}

-- name: steps
-- Promise: the workflow's steps in the order in which they were added. Parameters: id.
-- Rows: (task_id, name, kind, type, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id, claimed_at,
-- finished_at, error, the sub-workflow's id).
SELECT step.task_id, step.name, step.kind, task.type, task.queue, task.state, task.attempts, task.max_attempts,
       step.waits, step.on_failure, step.passed, task.worker_id, task.claimed_at, task.finished_at, task.error, sub.id
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
LEFT JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.workflow_id = :id
ORDER BY step.task_id

-- name: edges
-- Promise: who waits for whom in the workflow. Parameters: id. Rows: (parent, child).
SELECT edge.parent_id, edge.child_id
FROM dibs_steps AS step JOIN dibs_edges AS edge ON edge.child_id = step.task_id
WHERE step.workflow_id = :id
ORDER BY edge.child_id, edge.parent_id
