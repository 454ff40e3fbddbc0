-- Workers, task types, and pauses of queues and types.
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
-- Parameters: name, version, schema, defaults, source, now. Rows: all columns.
{{with_moment}}
INSERT INTO dibs_task_types (name, version, schema, defaults, source, created_at)
VALUES (:name, :version, :schema, :defaults, :source, {{now}})
ON CONFLICT (name, version) DO NOTHING
RETURNING name, version, schema, defaults, source, created_at, {{type_paused_at}}

-- fragment: type_paused_at
-- When the registered type was paused; NULL if it is not paused.
(SELECT paused_at FROM dibs_pauses WHERE scope = 'type' AND dibs_pauses.name = dibs_task_types.name)

-- name: get_type
-- Promise: this version of a task type, or its newest where version is NULL. Parameters: name, version. Rows: all
-- columns.
SELECT name, version, schema, defaults, source, created_at, {{type_paused_at}} FROM dibs_task_types
WHERE name = :name AND (CAST(:version AS integer) IS NULL OR version = :version) ORDER BY version DESC LIMIT 1

-- name: list_types
-- Promise: all versions of all task types. Rows: all columns.
SELECT name, version, schema, defaults, source, created_at, {{type_paused_at}} FROM dibs_task_types ORDER BY name, version DESC

-- name: latest_types
-- Promise: the newest version of each task type. Rows: (name, version, schema, defaults, source).
SELECT name, version, schema, defaults, source FROM dibs_task_types AS known
WHERE version = (SELECT max(version) FROM dibs_task_types WHERE name = known.name)

-- name: declared_types
-- Promise: of each task type the newest version, and the newest version that code declared, which may be the same.
-- Rows: (name, version, schema, defaults, source), the newest of a type last.
SELECT name, version, schema, defaults, source FROM dibs_task_types AS known
WHERE version = (SELECT max(version) FROM dibs_task_types WHERE name = known.name)
   OR version = (SELECT max(version) FROM dibs_task_types WHERE name = known.name AND source = 'code')
ORDER BY name, version

-- name: pause
-- Promise: tasks of the queue or type are not claimed from now on. Parameters: scope, name, by, now. Rows: none.
{{with_moment}}
INSERT INTO dibs_pauses AS pause (scope, name, paused_at, paused_by, parked) VALUES (:scope, :name, {{now}}, :by, true)
ON CONFLICT (scope, name) DO UPDATE
SET paused_at = coalesce(pause.paused_at, excluded.paused_at), paused_by = excluded.paused_by, parked = true

-- name: resume
-- Promise: tasks of the queue or type may be claimed again. Parameters: scope, name. Rows: none.
-- Safe: the statement writes the row of the pause, and a transaction that parks tasks for the pause holds a lock of this
-- row: after the resume no task is parked for it.
UPDATE dibs_pauses SET paused_at = NULL, paused_by = NULL WHERE scope = :scope AND name = :name

-- name: pauses_to_park
-- Promise: up to `limit` paused queues, or types, that have a claimable task. Parameters: scope. Words: which
-- (pauses_with_tasks, or pauses_within_reach in a store without the index of streams), column (queue or type), limit,
-- reach. Rows: (scope, name).
{{which}} LIMIT {{limit}}

-- fragment: pauses_with_tasks
-- All such pauses. Indexes: dibs_pauses_paused, and one probe of dibs_tasks_by_queue or dibs_tasks_by_type for each pause.
SELECT scope, name FROM dibs_pauses AS pause
WHERE scope = :scope AND paused_at IS NOT NULL
  AND EXISTS (SELECT 1 FROM dibs_tasks WHERE {{claimable}} AND dibs_tasks.{{column}} = pause.name)

-- fragment: pauses_within_reach
-- Those with a task among the first `reach` of the store. Index: dibs_tasks_by_priority, `reach` entries.
SELECT scope, name FROM dibs_pauses
WHERE scope = :scope AND paused_at IS NOT NULL AND name IN (
    SELECT {{column}} FROM (SELECT queue, type FROM dibs_tasks {{indexed_by: dibs_tasks_by_priority}} WHERE {{claimable}}
                            ORDER BY priority DESC, {{age_in_store}} LIMIT {{reach}}) AS task)

-- name: beyond_reach
-- Promise: whether the store has more than `reach` claimable tasks. Words: reach. Rows: (1), or none.
-- Index: dibs_tasks_by_age, `reach` entries.
SELECT 1 FROM dibs_tasks {{indexed_by: dibs_tasks_by_age}} WHERE {{claimable}} ORDER BY id LIMIT 1 OFFSET {{reach}}

-- name: scopes_paused
-- Promise: whether any queue, and whether any type is paused. Rows: (scope) for each that is; none if nothing is paused.
-- Index: dibs_pauses_paused.
SELECT scope FROM (SELECT 'queue' AS scope UNION ALL SELECT 'type') AS each
WHERE EXISTS (SELECT 1 FROM dibs_pauses WHERE dibs_pauses.scope = each.scope AND paused_at IS NOT NULL)

-- name: pauses_to_unpark
-- Promise: up to `limit` pauses that have ended and may have parked tasks. Parameters: limit. Rows: (scope, name).
-- Index: dibs_pauses_resumed.
SELECT scope, name FROM dibs_pauses WHERE parked AND paused_at IS NULL LIMIT {{limit}}

-- fragment: pause_name
-- The queue or the type for whose pause a parked task is parked. The index dibs_tasks_parked has it.
CASE WHEN type_parked THEN type ELSE queue END

-- name: note_unparked
-- Promise: the pause is no longer marked, if no task is parked for it. Parameters: scope, name, by_type. Rows: none.
-- Index: dibs_tasks_parked, one probe. Safe: a pause that has ended gets no parked tasks (see `resume`, `unpark`).
UPDATE dibs_pauses SET parked = false
WHERE scope = :scope AND name = :name AND parked AND paused_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE {{is_parked}} AND type_parked = :by_type AND {{pause_name}} = :name)

-- name: pauses
-- Promise: the queues and types that have been paused or resumed. Rows: (scope, name, paused_at, parked).
SELECT scope, name, paused_at, parked FROM dibs_pauses

-- fragment: is_not_paused
-- A condition: neither the queue nor the type of this row is paused. The argument: the alias of the row. Index: the primary
-- key.
NOT EXISTS (SELECT 1 FROM dibs_pauses AS pause
            WHERE pause.scope = 'queue' AND pause.name = {{argument}}.queue AND pause.paused_at IS NOT NULL)
AND NOT EXISTS (SELECT 1 FROM dibs_pauses AS pause
                WHERE pause.scope = 'type' AND pause.name = {{argument}}.type AND pause.paused_at IS NOT NULL)

-- name: pauses_of_task
-- Promise: the pauses of the task's queue and of its type, whether the task is parked, and whether for its type.
-- Parameters: id. Rows: (paused_at of the queue, paused_at of the type, parked, type_parked); none if the task does not
-- exist. Index: the primary keys.
SELECT (SELECT paused_at FROM dibs_pauses WHERE scope = 'queue' AND name = task.queue),
    (SELECT paused_at FROM dibs_pauses WHERE scope = 'type' AND name = task.type),
    parked AND backlog IS NULL, type_parked
FROM dibs_tasks AS task WHERE id = :id
