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
UPDATE dibs_queues SET paused_at = NULL, paused_by = NULL WHERE name = :queue

-- name: queues
-- Promise: the queues that have been paused or resumed. Rows: (name, paused_at).
SELECT name, paused_at FROM dibs_queues
