-- Reads: tasks, lists, searches, history, and the state of workflows.
-- Locks: none. These statements only read.

-- name: get
-- Promise: the tasks with these ids that exist. Parameters: ids. Rows: task columns.
SELECT {{task}} FROM dibs_tasks AS task WHERE id {{in: ids}}

-- name: list
-- Promise: a page of tasks, newest first. Parameters: limit and the parameters of the conditions. Rows: task columns.
SELECT {{task}} FROM dibs_tasks AS task WHERE id > 0 {{conditions}} ORDER BY id DESC LIMIT {{limit}}

-- name: task_states
-- Promise: the states of the tasks with these ids that exist. Parameters: ids. Rows: (id, state, queue). Index: the
-- primary key.
SELECT id, state, queue FROM dibs_tasks WHERE id {{in: ids}}

-- name: queues_of
-- Promise: the queues of the tasks with these ids that exist. Parameters: ids. Rows: (id, queue). Index: the primary
-- key.
SELECT id, queue FROM dibs_tasks WHERE id {{in: ids}}

-- name: waits_for
-- Promise: the parents that this step still waits for. Parameters: id, limit. Rows: (name, task_id, state, queue).
SELECT parent.name, parent.task_id, task.state, task.queue
FROM dibs_edges AS edge
JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
JOIN dibs_tasks AS task ON task.id = parent.task_id
WHERE edge.child_id = :id AND (parent.passed IS NULL OR NOT parent.passed)
ORDER BY parent.task_id LIMIT {{limit}}

-- fragment: task_summary
-- The columns of a task in a list, in the order that `_read_summary` expects: of params and error only the beginning,
-- however long they are.
id, type, state, queue, priority, attempts, max_attempts, worker_id, created_at, run_at, claimed_at, lease_until,
finished_at, progress, workflow_id, key, cancel_requested, substr(params, 1, 200), substr({{error_text}}, 1, 200),
{{error_head}}, tags

-- name: search_ids
-- Promise: the tasks with these ids that match and are below an id, newest first.
-- Parameters: ids, below, limit and the parameters of the conditions.
-- Rows: summaries of tasks (whole tasks, if the word task_summary is `task`). Index: the primary key.
SELECT {{task_summary}} FROM dibs_tasks AS task {{not_indexed}}
WHERE id < :below {{with_these_ids}} {{conditions}}
ORDER BY id DESC LIMIT {{limit}}

-- name: id_range
-- Promise: how far the next `limit` tasks below an id, and above another, reach. Parameters: above, below, limit.
-- Rows: (highest id, lowest id, how many); one row, of NULLs and 0 where there are none. Index: the primary key.
SELECT max(id), min(id), count(*)
FROM (SELECT id FROM dibs_tasks WHERE id > :above AND id < :below ORDER BY id DESC LIMIT {{limit}}) AS stretch

-- name: at_or_below
-- Promise: the task with this id, or with the next lower id. Parameters: id. Rows: (id, created_at).
-- Index: the primary key.
SELECT id, created_at FROM dibs_tasks WHERE id <= :id ORDER BY id DESC LIMIT 1

-- name: few_tasks
-- Promise: the ids of the tasks that match, up to `limit`; if there are fewer rows, these are all. Parameters: those of
-- the condition. Words: index, condition, order, limit. Rows: (id). Index: the given one, in its order, which keeps the
-- planner from other plans.
SELECT id FROM dibs_tasks {{indexed_by: {{index}}}} WHERE {{condition}} ORDER BY {{order}} LIMIT {{limit}}

-- name: few_blocked
-- Promise: the steps that have not ended, up to `limit`; if there are fewer rows, every blocked task is among them.
-- Parameters: limit. Rows: (id). Index: dibs_steps_open.
SELECT task_id FROM dibs_steps {{indexed_by: dibs_steps_open}} WHERE passed IS NULL
ORDER BY workflow_id, task_id LIMIT {{limit}}

-- name: history
-- Promise: the history of a task, in order. Parameters: id. Rows: all columns. Index: dibs_history_task.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail FROM dibs_history
WHERE task_id = :id ORDER BY id

-- name: history_after
-- Promise: a page of the history of all tasks, in order. Parameters: after, limit. Rows: all columns.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail FROM dibs_history
WHERE id > :after ORDER BY id LIMIT {{limit}}

-- name: events_after
-- Promise: a page of the history of all tasks, in order, with the queue and type of each task that still exists.
-- Parameters: after, limit, queues. Rows: all columns of the history, queue, type.
-- Indexes: both primary keys. The queue is looked up for each entry: a join might begin with the tasks.
SELECT * FROM (
    SELECT past.id, past.task_id, past.event, past.from_state, past.to_state, past.worker_id, past.token, past.by,
           past.at, past.detail,
           (SELECT queue FROM dibs_tasks WHERE id = past.task_id) AS queue,
           (SELECT type FROM dibs_tasks WHERE id = past.task_id) AS type
    FROM dibs_history AS past
) AS entry
WHERE id > :after {{conditions}} ORDER BY id LIMIT {{limit}}

-- name: pruned_to
-- Promise: the id of the newest entry of the history that was pruned. Rows: (id); none if none was.
SELECT last FROM dibs_history_pruned

-- name: last_entry
-- Promise: the id of the newest entry of the history, 0 where there is none. Rows: (id). Index: the primary key's end.
SELECT coalesce(max(id), 0) FROM dibs_history

-- fragment: workflow
-- The columns of a workflow, in the order that `read_workflow` expects. The alias of the table is `workflow`.
workflow.id, workflow.name, workflow.state, workflow.steps, workflow.active, workflow.ended, workflow.failures,
workflow.created_at, workflow.queues, workflow.root_id, workflow.key, workflow.deadline, workflow.finished_at,
workflow.on_failure, workflow.stopping, workflow.error, workflow.step_of, workflow.finalizer_id,
workflow.finalization_token, workflow.finalization_by, workflow.finalization_until, workflow.finalize_when

-- name: list_workflows
-- Promise: a page of workflows, newest first, without sub-workflows. Parameters: limit and the parameters of the
-- conditions.
-- Rows: workflow columns.
SELECT {{workflow}} FROM dibs_workflows AS workflow
WHERE workflow.step_of IS NULL {{conditions}}
ORDER BY workflow.id DESC LIMIT {{limit}}

-- fragment: all_in_queues
-- A condition: all tasks of the workflow (alias `workflow`) are in these queues. Parameters: queues.
NOT EXISTS (SELECT 1 FROM {{text_items: workflow.queues}} WHERE NOT (item.value {{in_text: queues}}))

-- name: workflow_range
-- Promise: how far the next `limit` workflows below an id reach. Parameters: below, limit.
-- Rows: (lowest id, how many); one row, of NULL and 0 where there are none. Index: the primary key.
SELECT min(id), count(*)
FROM (SELECT id FROM dibs_workflows WHERE id < :below ORDER BY id DESC LIMIT {{limit}}) AS stretch

-- name: few_workflows
-- Promise: the ids of the workflows that match, the newest first, up to `limit`; if there are fewer rows, these are
-- all.
-- Parameters: those of the condition. Words: condition, order, limit. Rows: (id). Index: dibs_workflows_running or
-- dibs_workflows_finished.
SELECT id FROM dibs_workflows WHERE {{condition}} ORDER BY {{order}} DESC LIMIT {{limit}}

-- name: steps
-- Promise: the workflow's steps in the order in which they were added. Parameters: id.
-- Rows: (task_id, name, kind, type, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id,
-- claimed_at, finished_at, error, the sub-workflow's id).
SELECT step.task_id, step.name, step.kind, task.type, task.queue, task.state, task.attempts, task.max_attempts,
       step.waits, step.on_failure, step.passed, task.worker_id, task.claimed_at, task.finished_at, task.error, sub.id
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
LEFT JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.workflow_id = :id
ORDER BY step.task_id

-- name: edges
-- Promise: the edges of the workflow's graph. Parameters: id. Rows: (parent, child).
SELECT edge.parent_id, edge.child_id
FROM dibs_steps AS step JOIN dibs_edges AS edge ON edge.child_id = step.task_id
WHERE step.workflow_id = :id
ORDER BY edge.child_id, edge.parent_id

-- name: some_steps
-- Promise: these steps as they are now, without results and errors. Parameters: ids.
-- Rows: (task_id, name, kind, type, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id,
-- claimed_at, finished_at, the sub-workflow's id, how many steps it has, how many of them have ended). Index: the
-- primary keys.
SELECT step.task_id, step.name, step.kind, task.type, task.queue, task.state, task.attempts, task.max_attempts,
       step.waits, step.on_failure, step.passed, task.worker_id, task.claimed_at, task.finished_at, sub.id,
       sub.steps, sub.ended
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
LEFT JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.task_id {{in: ids}}

-- name: step_errors
-- Promise: the last error of each of these tasks, the first 200 characters. Parameters: ids. Rows: (id, text).
-- Index: the primary key.
SELECT id, substr({{error_text}}, 1, 200)
FROM dibs_tasks WHERE id {{in: ids}} AND error IS NOT NULL
