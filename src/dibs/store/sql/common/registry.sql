-- Workers, task types and paused queues.
-- Locks: those of the engine, see the file of the same theme there.

-- name: list_types
-- Promise: all versions of all task types. Rows: all columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types ORDER BY name, version DESC

-- name: latest_types
-- Promise: the newest version of each task type. Rows: (name, version, schema, defaults).
SELECT name, version, schema, defaults FROM dibs_task_types AS known
WHERE version = (SELECT max(version) FROM dibs_task_types WHERE name = known.name)

-- name: resume
-- Promise: the queue may be claimed from again. Parameters: queue. Rows: none.
UPDATE dibs_queues SET paused_at = NULL, paused_by = NULL WHERE name = :queue

-- name: queues
-- Promise: the queues that have been paused or resumed. Rows: (name, paused_at).
SELECT name, paused_at FROM dibs_queues
