-- Workers, task types and paused queues.
-- Locks: the roots of workflow trees in the order of their ids (hold_workflows), then tasks in the order of their ids (in_turn,
-- hold_tasks); a statement that takes what it finds passes over rows that are locked (SKIP LOCKED).

-- name: heartbeat
-- Promise: this incarnation of the worker is known and was alive now, or left now.
-- Parameters: worker_id, incarnation, limited_to, queues, types, metadata, leaving, now. Rows: none.
-- Safe: limited_to is part of the record's name, so a heartbeat under a queue limit changes records of that limit only.
WITH {{moment}}
INSERT INTO dibs_workers (id, incarnation, limited_to, queues, types, metadata, started_at, heartbeat_at, stopped_at)
SELECT :worker_id, :incarnation, :limited_to, :queues, :types, :metadata, moment.now, moment.now,
       CASE WHEN :leaving THEN moment.now END
FROM moment
ON CONFLICT (id, incarnation, limited_to) DO UPDATE
SET queues = excluded.queues, types = excluded.types, metadata = excluded.metadata,
    heartbeat_at = excluded.heartbeat_at, stopped_at = excluded.stopped_at

-- name: workers
-- Promise: every known worker, the oldest first. Rows: its columns, the microseconds since its last heartbeat, and the
-- queue limit of the API key that registered it (JSON, empty for none).
WITH {{moment}}
SELECT id, incarnation, queues, types, metadata, started_at, heartbeat_at, stopped_at, moment.now - heartbeat_at,
    limited_to
FROM dibs_workers, moment ORDER BY started_at, id, incarnation, limited_to

-- name: held
-- Promise: who holds which task. Rows: (worker_id, incarnation, task id, queue). Index: dibs_tasks_leases.
SELECT worker_id, incarnation, id, queue FROM dibs_tasks WHERE state = 'claimed' ORDER BY id

-- name: prune_workers
-- Promise: workers not heard of for longer than `kept` are forgotten. Parameters: kept, now. Rows: (id).
WITH {{moment}}
DELETE FROM dibs_workers USING moment WHERE heartbeat_at <= moment.now - :kept RETURNING id

-- name: register_type
-- Promise: this version of the type, unless somebody took the number first (no row then).
-- Parameters: name, version, schema, defaults, now. Rows: all columns.
WITH {{moment}}
INSERT INTO dibs_task_types (name, version, schema, defaults, created_at)
SELECT :name, :version, :schema, :defaults, moment.now FROM moment
ON CONFLICT (name, version) DO NOTHING
RETURNING name, version, schema, defaults, created_at

-- name: get_type
-- Promise: this version of a task type, or its newest where version is NULL. Rows: all columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types
WHERE name = :name AND (:version::int IS NULL OR version = :version) ORDER BY version DESC LIMIT 1

-- name: pause
-- Promise: nobody claims from the queue from now on. Parameters: queue, by, now. Rows: none.
WITH {{moment}}
INSERT INTO dibs_queues (name, paused_at, paused_by) SELECT :queue, moment.now, :by FROM moment
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce(dibs_queues.paused_at, excluded.paused_at), paused_by = excluded.paused_by
