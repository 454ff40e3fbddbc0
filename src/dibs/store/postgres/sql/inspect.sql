-- Reads: tasks, lists, searches, history, and the state of workflows.
-- Locks: none. These statements only read.

-- name: search_range
-- Promise: the tasks of a range of ids that match, newest first.
-- Parameters: lowest, highest, span, limit and the parameters of the conditions.
-- Rows: summaries of tasks (whole tasks, if the word task_summary is `task`). Index: the primary key: a
-- limit of its own makes the inner part a walk along it whatever the conditions are; tasks that are inserted
-- after the range was read must not displace the lowest ids.
SELECT {{task_summary}}
FROM (SELECT * FROM dibs_tasks WHERE id BETWEEN :lowest AND :highest ORDER BY id DESC LIMIT {{span}}) AS task
WHERE task.id > 0 {{conditions}}
ORDER BY task.id DESC LIMIT {{limit}}

-- name: latest_history
-- Promise: the newest entries of a task's history, newest first, and how many there are. Parameters: id, limit.
-- Rows: all columns, count. Index: dibs_history_task, then the primary key. The ids of the task come first,
-- materialized: for the few newest PostgreSQL would rather read the history of all tasks backwards until it has met
-- them.
WITH own AS MATERIALIZED (SELECT id FROM dibs_history WHERE task_id = :id)
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail, (SELECT count(*) FROM own)
FROM dibs_history
WHERE id = ANY (ARRAY(SELECT id FROM own ORDER BY id DESC LIMIT {{limit}}))
ORDER BY id DESC

-- name: outline
-- Promise: what never changes of the workflow's first steps, in the order in which they were added. Parameters: id,
-- limit.
-- Rows: (task_id, name, kind, type). Index: dibs_steps_names, and the primary key of the tasks. The steps of the
-- workflow come first, materialized, and their tasks one by one (OFFSET 0): for some in order PostgreSQL would rather
-- read the steps of all workflows, and for many of them all tasks.
WITH own AS MATERIALIZED (SELECT task_id, name, kind FROM dibs_steps WHERE workflow_id = :id)
SELECT step.task_id, step.name, step.kind, task.type
FROM (SELECT * FROM own ORDER BY task_id LIMIT {{limit}}) AS step
CROSS JOIN LATERAL (SELECT type FROM dibs_tasks WHERE id = step.task_id OFFSET 0) AS task
ORDER BY step.task_id

-- name: outline_edges
-- Promise: the edges among the workflow's steps, up to the last step that is shown. Parameters: id, last, limit.
-- Rows: one, (parents, children), each as JSON: two long lists take half the time of many short rows.
-- Index: dibs_steps_names, and dibs_edges_child, one by one (OFFSET 0; see `outline`).
WITH own AS MATERIALIZED (SELECT task_id FROM dibs_steps WHERE workflow_id = :id AND task_id <= :last)
SELECT coalesce(json_agg(parent_id)::text, '[]'), coalesce(json_agg(child_id)::text, '[]')
FROM (
    SELECT edge.parent_id, step.task_id AS child_id
    FROM own AS step
    CROSS JOIN LATERAL (SELECT parent_id FROM dibs_edges WHERE child_id = step.task_id OFFSET 0) AS edge
    ORDER BY step.task_id, edge.parent_id LIMIT {{limit}}
) AS shown

-- name: step_states
-- Promise: the states of the workflow's steps, up to the last step that is shown. Parameters: id, last.
-- Rows: (state, on_failure, passed, ids as JSON): a few rows for thousands of steps, which takes half the time.
-- Index: dibs_steps_names, and the primary key of the tasks, one by one (OFFSET 0; see `outline`).
SELECT task.state, step.on_failure, step.passed, json_agg(step.task_id)::text
FROM dibs_steps AS step
CROSS JOIN LATERAL (SELECT state FROM dibs_tasks WHERE id = step.task_id OFFSET 0) AS task
WHERE step.workflow_id = :id AND step.task_id <= :last
GROUP BY task.state, step.on_failure, step.passed

-- name: history_writers
-- Promise: the open transactions, other than the caller's, that write to the history or are about to. Rows: (name).
-- Safe: a transaction takes this lock before it takes the id of an entry, and keeps it until its entries are visible to
-- all later reads; so does a prepared transaction. Names are not used again.
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = CAST('dibs_history' AS regclass) AND mode = 'RowExclusiveLock'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid()
