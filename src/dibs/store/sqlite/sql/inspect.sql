-- Reads: tasks, lists, searches, history, and the state of workflows.
-- Locks: none. These statements only read.

-- name: search_range
-- Promise: the tasks of a range of ids that match, newest first.
-- Parameters: lowest, highest, limit and the parameters of the conditions.
-- Rows: summaries of tasks (whole tasks, if the word task_summary is `task`). Index: the primary key alone, so
-- that no condition makes the planner leave the range.
SELECT {{task_summary}} FROM dibs_tasks NOT INDEXED WHERE id BETWEEN :lowest AND :highest {{conditions}}
ORDER BY id DESC LIMIT {{limit}}

-- name: latest_history
-- Promise: the newest entries of a task's history, newest first, and how many there are. Parameters: id, limit.
-- Rows: all columns, count. Index: dibs_history_task, which has the ids of a task's entries in order.
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail,
       (SELECT count(*) FROM dibs_history WHERE task_id = :id)
FROM dibs_history WHERE task_id = :id ORDER BY id DESC LIMIT {{limit}}

-- name: outline
-- Promise: what never changes of the workflow's first steps, in the order in which they were added. Parameters: id,
-- limit.
-- Rows: (task_id, name, kind, type). Index: dibs_steps_names, and the primary key of the tasks.
SELECT step.task_id, step.name, step.kind, task.type
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id
ORDER BY step.task_id LIMIT {{limit}}

-- name: outline_edges
-- Promise: the edges among the workflow's steps, up to the last step that is shown. Parameters: id, last, limit.
-- Rows: one, (parents, children), each as JSON: two long lists take half the time of many short rows.
-- Index: dibs_steps_names, dibs_edges_child.
SELECT json_group_array(parent_id), json_group_array(child_id)
FROM (
    SELECT edge.parent_id, edge.child_id
    FROM dibs_steps AS step JOIN dibs_edges AS edge ON edge.child_id = step.task_id
    WHERE step.workflow_id = :id AND step.task_id <= :last
    ORDER BY edge.child_id, edge.parent_id LIMIT {{limit}}
) AS shown

-- name: step_states
-- Promise: the states of the workflow's steps, up to the last step that is shown. Parameters: id, last.
-- Rows: (state, on_failure, passed, ids as JSON): a few rows for thousands of steps, which takes half the time.
-- Index: dibs_steps_names, and the primary key of the tasks.
SELECT task.state, step.on_failure, step.passed, json_group_array(step.task_id)
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.task_id <= :last
GROUP BY task.state, step.on_failure, step.passed

-- name: history_writers
-- Promise: the open transactions that write to the history: none that matter, because there is one writer, and entries
-- become visible in the order of their ids. Rows: none.
SELECT '' WHERE 0
