-- Idempotency keys: the keys in force, and the end of a key.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- fragment: key_in_force
-- A condition: the task has its key, and no other task of the queue can get the key. It is the condition of
-- dibs_tasks_key.
key IS NOT NULL AND (key_scope IS NULL OR (key_ended IS NULL AND (key_scope = 'until_time'
    OR (state NOT IN ('completed', 'failed', 'cancelled') AND (key_scope = 'until_finished' OR token = 0)))))

-- fragment: scope_shown
-- The scope of a task's key as tasks show it.
CASE WHEN key_ended IS NULL THEN key_scope ELSE 'ended' END

-- fragment: kept_task
-- The columns of `task` for a key whose task is pruned: what is left of the task.
task_id, type, queue, coalesce(state, 'completed'), '{}', priority, 0, max_attempts, 0, created_at, created_at, NULL,
NULL, NULL, NULL, NULL, NULL, key, false, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 'until_time', until,
NULL, NULL

-- fragment: key_ended_before
-- The column key_ended of a task that is retried: a key that ended with the task is not in force again at once, because
-- another task may have the key. `take_back_key` follows.
CASE WHEN key_scope IN ('until_finished', 'until_started') THEN true ELSE key_ended END

-- fragment: may_take_back
-- True for a retried task for which `take_back_key` has to follow.
coalesce(key_ended AND key_scope <> 'until_time', false)

-- name: end_keys
-- Promise: the keys of these tasks that were in force until a time that has passed have ended. Parameters: ids, now.
-- Rows: none. Index: the primary key.
-- Safe: time and scope are compared in the statement that writes, and an ended key does not come into force again, so a
-- second client changes nothing.
{{with_moment}}
UPDATE dibs_tasks SET key_ended = true
WHERE id {{in: ids}} AND key_scope = 'until_time' AND key_until <= {{now}} AND key_ended IS NULL

-- name: take_back_key
-- Promise: the key of this retried task is in force again. An error, if another task of its queue has the key.
-- Parameters: id. Rows: none. Index: dibs_tasks_key finds the other task, also one that another client is inserting,
-- for whose commit this statement waits.
UPDATE dibs_tasks SET key_ended = NULL WHERE id = :id AND key_ended

-- name: note_pruned_keys
-- Promise: the keys of these tasks, which were just deleted, show the final state of the task. Parameters: ids, state.
-- Rows: none. Index: dibs_kept_keys_task. Safe: in the transaction that deletes the tasks.
UPDATE dibs_kept_keys SET state = :state WHERE task_id {{in: ids}}

-- name: drop_past_keys
-- Promise: this queue has no kept keys that are past their time and equal those of these tasks. Parameters: ids, queue,
-- now. Rows: none. Indexes: dibs_kept_keys_task, the primary key.
{{with_moment}}
DELETE FROM dibs_kept_keys
WHERE queue = :queue AND until <= {{now}} AND key IN (SELECT key FROM dibs_kept_keys WHERE task_id {{in: ids}})

-- name: move_kept_keys
-- Promise: the kept keys of these tasks belong to this queue. Parameters: ids, queue. Rows: none.
-- Index: dibs_kept_keys_task.
UPDATE dibs_kept_keys SET queue = :queue WHERE task_id {{in: ids}}

-- name: prune_kept_keys
-- Promise: up to `limit` kept keys whose time has passed are deleted. Parameters: now. Words: limit. Rows: (key).
-- Index: dibs_kept_keys_until. Safe: the time is compared again in the statement that deletes; a client that takes the
-- key meanwhile overwrites the row with a later time.
{{with_moment}}
DELETE FROM dibs_kept_keys
WHERE until <= {{now}} AND task_id {{in_select:
    SELECT task_id FROM dibs_kept_keys {{indexed_by: dibs_kept_keys_until}}
    WHERE until <= {{now}} ORDER BY until LIMIT {{limit}} {{skip_locked}}}}
RETURNING key
