-- Workers, task types and paused queues.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: heartbeat
-- Promise: this incarnation of the worker is recorded as alive now, or as stopped now.
-- Parameters: worker_id, incarnation, limited_to, queues, types, metadata, leaving, now. Rows: none.
-- Safe: limited_to is part of the record's name, so a heartbeat under a queue limit changes records of that limit only.
{{with_moment}}
INSERT INTO dibs_workers (id, incarnation, limited_to, queues, types, metadata, started_at, heartbeat_at, stopped_at)
VALUES (:worker_id, :incarnation, :limited_to, :queues, :types, :metadata, {{now}}, {{now}},
        CASE WHEN :leaving THEN {{now}} END)
ON CONFLICT (id, incarnation, limited_to) DO UPDATE
SET queues = excluded.queues, types = excluded.types, metadata = excluded.metadata,
    heartbeat_at = excluded.heartbeat_at, stopped_at = excluded.stopped_at

-- name: workers
-- Promise: every known worker, the oldest first. Parameters: now. Rows: its columns, the microseconds since its last
-- heartbeat, and the queue limit of the API key that registered it (JSON, empty for none).
{{with_moment}}
SELECT id, incarnation, queues, types, metadata, started_at, heartbeat_at, stopped_at, {{now}} - heartbeat_at,
    limited_to
FROM dibs_workers ORDER BY started_at, id, incarnation, limited_to

-- name: held
-- Promise: every claimed task with its worker. Rows: (worker_id, incarnation, task id, queue). Index:
-- dibs_tasks_leases.
SELECT worker_id, incarnation, id, queue FROM dibs_tasks {{indexed_by: dibs_tasks_leases}}
WHERE state = 'claimed' ORDER BY id

-- name: prune_workers
-- Promise: workers without a heartbeat for longer than `kept` are deleted. Parameters: kept, now. Rows: (id).
{{with_moment}}
DELETE FROM dibs_workers WHERE heartbeat_at <= {{now}} - :kept RETURNING id

-- name: register_type
-- Promise: this version of the type is stored, unless another client took the number first (no row then).
-- Parameters: name, version, schema, defaults, now. Rows: all columns.
{{with_moment}}
INSERT INTO dibs_task_types (name, version, schema, defaults, created_at)
VALUES (:name, :version, :schema, :defaults, {{now}})
ON CONFLICT (name, version) DO NOTHING
RETURNING name, version, schema, defaults, created_at

-- name: get_type
-- Promise: this version of a task type, or its newest where version is NULL. Parameters: name, version. Rows: all
-- columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types
WHERE name = :name AND (CAST(:version AS integer) IS NULL OR version = :version) ORDER BY version DESC LIMIT 1

-- name: list_types
-- Promise: all versions of all task types. Rows: all columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types ORDER BY name, version DESC

-- name: latest_types
-- Promise: the newest version of each task type. Rows: (name, version, schema, defaults).
SELECT name, version, schema, defaults FROM dibs_task_types AS known
WHERE version = (SELECT max(version) FROM dibs_task_types WHERE name = known.name)

-- name: pause
-- Promise: tasks of the queue are not claimed from now on. Parameters: queue, by, now. Rows: none.
{{with_moment}}
INSERT INTO dibs_queues AS queue (name, paused_at, paused_by) VALUES (:queue, {{now}}, :by)
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce(queue.paused_at, excluded.paused_at), paused_by = excluded.paused_by

-- name: resume
-- Promise: the queue may be claimed from again. Parameters: queue. Rows: none.
-- Safe: the statement writes the queue's row, and a transaction that parks tasks of the queue holds a lock of this row:
-- after the resume no task of the queue is parked.
UPDATE dibs_queues SET paused_at = NULL, paused_by = NULL WHERE name = :queue

-- name: queues_to_park
-- Promise: up to `limit` paused queues that have a claimable task. Parameters: limit. Rows: (name).
-- Indexes: dibs_queues_paused, and one probe of dibs_tasks_by_queue for each paused queue.
SELECT name FROM dibs_queues AS queue
WHERE paused_at IS NOT NULL AND EXISTS (SELECT 1 FROM dibs_tasks WHERE {{claimable}} AND dibs_tasks.queue = queue.name)
LIMIT {{limit}}

-- name: queues_to_unpark
-- Promise: up to `limit` queues that are not paused and may have parked tasks. Parameters: limit. Rows: (name).
-- Index: dibs_queues_resumed.
SELECT name FROM dibs_queues WHERE parked AND paused_at IS NULL LIMIT {{limit}}

-- name: note_parked
-- Promise: the queue is marked as one that may have parked tasks. Parameters: queue. Rows: none.
-- Safe: in the transaction of `park`, which holds a lock of the queue's row.
UPDATE dibs_queues SET parked = true WHERE name = :queue AND NOT parked

-- name: note_unparked
-- Promise: the queue is no longer marked, if it has no parked task. Parameters: queue. Rows: none.
-- Index: dibs_tasks_parked, one probe. Safe: a queue that is not paused gets no parked tasks (see `resume`).
UPDATE dibs_queues SET parked = false
WHERE name = :queue AND parked AND paused_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE {{is_parked}} AND queue = :queue)

-- name: queues
-- Promise: the queues that have been paused or resumed. Rows: (name, paused_at, parked).
SELECT name, paused_at, parked FROM dibs_queues

-- name: pause_of_task
-- Promise: the pause of the task's queue, and whether the task is parked. Parameters: id. Rows: (paused_at, parked);
-- none if the task does not exist. Index: the primary keys.
SELECT (SELECT paused_at FROM dibs_queues WHERE name = task.queue), parked FROM dibs_tasks AS task WHERE id = :id
