-- Reading: tasks, lists, searches, history, and how workflows stand.
-- Locks: none; these statements read.

-- name: get
-- Promise: the tasks with these ids that exist. Parameters: ids. Rows: task columns.
SELECT {{task}} FROM dibs_tasks AS task WHERE task.id = ANY(:ids::bigint[])

-- name: list
-- Promise: a page of tasks, newest first. Parameters: limit and those of the conditions. Rows: task columns.
SELECT {{task}} FROM dibs_tasks AS task WHERE task.id > 0 {{conditions}} ORDER BY task.id DESC LIMIT {{limit}}

-- fragment: by_cursor
-- A condition of `list`.
AND task.id < :cursor

-- fragment: by_dead
-- A condition of lists and searches of the dead letter, beside that of the state.
AND task.set_aside IS NULL

-- fragment: by_error
-- A condition of `redrive`: the text stands in the error's type and message.
AND strpos((task.error::json ->> 'type') || ': ' || (task.error::json ->> 'message'), :error) > 0

-- fragment: by_key
-- A condition of searches.
AND task.key = :key

-- fragment: by_queue
-- A condition of `list`.
AND task.queue = :queue

-- fragment: by_queues
-- A condition of `list` and of the statistics.
AND task.queue = ANY(:queues::text[])

-- fragment: by_since
-- A condition of searches: created then or later.
AND task.created_at >= :since

-- fragment: by_state
-- A condition of `list`.
AND task.state = :state

-- fragment: by_still
-- A condition of searches: the state, in a form that no partial index matches.
AND {{still: :still}}

-- fragment: by_text
-- A condition of searches: the text stands in the params (as it is, or as JSON writes it) or in the error's type and
-- message. An error is parsed only if a part of the text stands somewhere in it: tracebacks are long.
AND (strpos(task.params, :text) > 0 OR strpos(task.params, :quoted) > 0
     OR CASE WHEN strpos(task.error, :part) > 0
             THEN strpos((task.error::json ->> 'type') || ': ' || (task.error::json ->> 'message'), :text) > 0 END)

-- fragment: by_type
-- A condition of `list`.
AND task.type = :type

-- fragment: by_until
-- A condition of searches: created before.
AND task.created_at < :until

-- fragment: by_worker
-- A condition of searches: the worker that holds the task, or held it last.
AND task.worker_id = :worker

-- name: queues_of
-- Promise: the queues of the tasks with these ids that exist. Parameters: ids. Rows: (id, queue). Index: the primary key.
SELECT id, queue FROM dibs_tasks WHERE id = ANY(:ids::bigint[])

-- name: search_these
-- Promise: those of these tasks that match and are below an id, newest first.
-- Parameters: ids, below, limit and those of the conditions.
-- Rows: lines of tasks (whole tasks, where the word task_line says so). Index: the primary key.
SELECT {{task_line}} FROM dibs_tasks AS task
WHERE task.id < :below {{with_these_ids}} {{conditions}}
ORDER BY task.id DESC LIMIT {{limit}}

-- name: search_stretch
-- Promise: the tasks of a stretch of ids that match, newest first.
-- Parameters: lowest, highest, span, limit and those of the conditions.
-- Rows: lines of tasks (whole tasks, where the word task_line says so). Index: the primary key: a
-- limit of its own makes the inner part a walk along it whatever the conditions are; what is inserted between the look
-- at the stretch and this one must not push out the lowest.
SELECT {{task_line}}
FROM (SELECT * FROM dibs_tasks WHERE id BETWEEN :lowest AND :highest ORDER BY id DESC LIMIT {{span}}) AS task
WHERE task.id > 0 {{conditions}}
ORDER BY task.id DESC LIMIT {{limit}}

-- name: few_pending
-- Promise: the pending tasks, of this queue (and this type in it) where one is given, up to `limit`: less than that are
-- all of them. Parameters: limit and those of the conditions. Rows: (id).
-- Index: dibs_tasks_by_age, read as it lies (the order keeps the planner from anything else).
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'pending' {{conditions}}
ORDER BY task.queue, task.type, task.attempts_left, task.id LIMIT {{limit}}

-- name: few_scheduled
-- Promise: the scheduled tasks, up to `limit`: less than that are all of them. Parameters: limit.
-- Rows: (id). Index: dibs_tasks_due, read as it lies (the order keeps the planner from anything else).
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'scheduled'
ORDER BY task.run_at LIMIT {{limit}}

-- name: few_claimed
-- Promise: the claimed tasks, up to `limit`: less than that are all of them. Parameters: limit.
-- Rows: (id). Index: dibs_tasks_leases, read as it lies (the order keeps the planner from anything else).
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'claimed'
ORDER BY task.lease_until LIMIT {{limit}}

-- name: few_blocked
-- Promise: the steps that have not ended, up to `limit`: less than that are all of them, and what is blocked is among
-- them. Parameters: limit. Rows: (id). Index: dibs_steps_open.
SELECT task_id FROM dibs_steps WHERE passed IS NULL
ORDER BY workflow_id, task_id LIMIT {{limit}}

-- name: few_finished
-- Promise: the tasks in this final state, up to `limit`, the newest endings first: less than that are all of them.
-- Parameters: state, limit. Rows: (id). Index: dibs_tasks_finished, from its end.
SELECT task.id FROM dibs_tasks AS task
WHERE task.state IN ('completed', 'failed', 'cancelled') AND task.state = :state
ORDER BY task.finished_at DESC LIMIT {{limit}}

-- name: few_dead
-- Promise: the tasks of the dead letter, up to `limit`, the newest failures first: less than that are all of them.
-- Parameters: limit. Rows: (id). Index: dibs_tasks_dead, from its end.
SELECT task.id FROM dibs_tasks AS task WHERE task.state = 'failed' AND task.set_aside IS NULL
ORDER BY task.finished_at DESC LIMIT {{limit}}

-- name: latest_history
-- Promise: the newest entries of a task's history, newest first, and how many there are. Parameters: id, limit.
-- Rows: all columns, count. Index: dibs_history_task, then the primary key.
-- The ids of the task come first, materialized: for the few newest PostgreSQL would rather read the history of all tasks
-- backwards until it has met them.
WITH own AS MATERIALIZED (SELECT id FROM dibs_history WHERE task_id = :id)
SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail, (SELECT count(*) FROM own)
FROM dibs_history
WHERE id = ANY (ARRAY(SELECT id FROM own ORDER BY id DESC LIMIT {{limit}}))
ORDER BY id DESC

-- name: events_after
-- Promise: a page of the history of all tasks, in order, with the queue and type of each task that still is there.
-- Parameters: after, limit, queues. Rows: all columns of the history, queue, type.
-- Indexes: both primary keys. The queue is looked up for each entry: a join might begin with the tasks.
SELECT * FROM (
    SELECT past.id, past.task_id, past.event, past.from_state, past.to_state, past.worker_id, past.token, past.by,
           past.at, past.detail,
           (SELECT queue FROM dibs_tasks WHERE id = past.task_id) AS queue,
           (SELECT type FROM dibs_tasks WHERE id = past.task_id) AS type
    FROM dibs_history AS past
) AS task
WHERE task.id > :after {{conditions}} ORDER BY task.id LIMIT {{limit}}

-- fragment: by_workflow_ids
-- A condition of `list_workflows`.
AND workflow.id = ANY(:ids::bigint[])

-- fragment: by_workflow_queues
-- A condition of `list_workflows` and `by_only`: all of its tasks are in these queues.
AND NOT EXISTS (SELECT FROM json_array_elements_text(workflow.queues::json) AS used (queue)
                WHERE used.queue <> ALL (:queues::text[]))

-- name: some_steps
-- Promise: these steps as they are now, without what they said. Parameters: ids.
-- Rows: (task_id, name, kind, type, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id, claimed_at,
-- finished_at, the sub-workflow's id, how many steps it has, how many of them have ended). Index: the primary keys.
SELECT step.task_id, step.name, step.kind, task.type, task.queue, task.state, task.attempts, task.max_attempts,
       step.waits, step.on_failure, step.passed, task.worker_id, task.claimed_at, task.finished_at, sub.id,
       sub.steps, sub.ended
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
LEFT JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.task_id = ANY(:ids::bigint[])

-- name: step_errors
-- Promise: what went wrong last with these tasks, the beginning of it. Parameters: ids. Rows: (id, text). Index: the primary key.
SELECT id, left((error::json ->> 'type') || ': ' || (error::json ->> 'message'), 200)
FROM dibs_tasks WHERE id = ANY(:ids::bigint[]) AND error IS NOT NULL

-- name: outline
-- Promise: what never changes of the workflow's first steps, in the order in which they were added. Parameters: id, limit.
-- Rows: (task_id, name, kind, type). Index: dibs_steps_names, and the primary key of the tasks.
-- The steps of the workflow come first, materialized, and their tasks one by one (OFFSET 0): for some in order PostgreSQL
-- would rather read the steps of all workflows, and for many of them all tasks.
WITH own AS MATERIALIZED (SELECT task_id, name, kind FROM dibs_steps WHERE workflow_id = :id)
SELECT step.task_id, step.name, step.kind, task.type
FROM (SELECT * FROM own ORDER BY task_id LIMIT {{limit}}) AS step
CROSS JOIN LATERAL (SELECT type FROM dibs_tasks WHERE id = step.task_id OFFSET 0) AS task
ORDER BY step.task_id

-- name: outline_edges
-- Promise: who waits for whom among the workflow's steps up to the last one that is shown. Parameters: id, last, limit.
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
-- Promise: how the workflow's steps stand, up to the last one that is shown. Parameters: id, last.
-- Rows: (state, on_failure, passed, ids as JSON): a few rows for thousands of steps, which takes half the time.
-- Index: dibs_steps_names, and the primary key of the tasks, one by one (OFFSET 0; see `outline`).
SELECT task.state, step.on_failure, step.passed, json_agg(step.task_id)::text
FROM dibs_steps AS step
CROSS JOIN LATERAL (SELECT state FROM dibs_tasks WHERE id = step.task_id OFFSET 0) AS task
WHERE step.workflow_id = :id AND step.task_id <= :last
GROUP BY task.state, step.on_failure, step.passed
