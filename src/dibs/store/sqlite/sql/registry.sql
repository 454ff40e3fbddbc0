-- Workers, task types and paused queues.
-- Locks: one transaction writes at a time; it holds the lock of the file from its first statement to its commit.

-- name: heartbeat
-- Promise: this incarnation of the worker is known and was alive now, or left now.
-- Parameters: worker_id, incarnation, limited_to, queues, types, metadata, leaving, now. Rows: none.
-- Safe: limited_to is part of the record's name, so a heartbeat under a queue limit changes records of that limit only.
INSERT INTO dibs_workers (id, incarnation, limited_to, queues, types, metadata, started_at, heartbeat_at, stopped_at)
VALUES (:worker_id, :incarnation, :limited_to, :queues, :types, :metadata, :now, :now, CASE WHEN :leaving THEN :now END)
ON CONFLICT (id, incarnation, limited_to) DO UPDATE
SET queues = excluded.queues, types = excluded.types, metadata = excluded.metadata,
    heartbeat_at = excluded.heartbeat_at, stopped_at = excluded.stopped_at

-- name: workers
-- Promise: every known worker, the oldest first. Rows: its columns, the microseconds since its last heartbeat, and the
-- queue limit of the API key that registered it (JSON, empty for none).
SELECT id, incarnation, queues, types, metadata, started_at, heartbeat_at, stopped_at, :now - heartbeat_at,
    limited_to
FROM dibs_workers ORDER BY started_at, id, incarnation, limited_to

-- name: held
-- Promise: who holds which task. Rows: (worker_id, incarnation, task id, queue). Index: dibs_tasks_leases.
SELECT worker_id, incarnation, id, queue FROM dibs_tasks INDEXED BY dibs_tasks_leases WHERE state = 'claimed' ORDER BY id

-- name: prune_workers
-- Promise: workers not heard of for longer than `kept` are forgotten. Parameters: kept, now. Rows: (id).
DELETE FROM dibs_workers WHERE heartbeat_at <= :now - :kept RETURNING id

-- name: register_type
-- Promise: this version of the type, unless somebody took the number first (no row then).
-- Parameters: name, version, schema, defaults, now. Rows: all columns.
INSERT INTO dibs_task_types (name, version, schema, defaults, created_at)
VALUES (:name, :version, :schema, :defaults, :now) ON CONFLICT (name, version) DO NOTHING
RETURNING name, version, schema, defaults, created_at

-- name: get_type
-- Promise: this version of a task type, or its newest where version is NULL. Rows: all columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types
WHERE name = :name AND (:version IS NULL OR version = :version) ORDER BY version DESC LIMIT 1

-- name: pause
-- Promise: nobody claims from the queue from now on. Parameters: queue, by, now. Rows: none.
INSERT INTO dibs_queues (name, paused_at, paused_by) VALUES (:queue, :now, :by)
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(paused_at, excluded.paused_at), paused_by = excluded.paused_by
