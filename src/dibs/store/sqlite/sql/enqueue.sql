-- New tasks and their idempotency keys.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- fragment: schema
-- The schema of the tables of dibs. It is named where SQLite would take another one: the temporary tables of a
-- connection have a table sqlite_sequence as well, which hides the one of the file. connection.py names another schema
-- where the tasks are elsewhere.
main

-- name: last_id
-- Promise: the moment, the highest task id ever given out (0 before the first), whether a random order is in use, and the
-- version of the limits. Parameters: now. Rows: (now, id, numbered, version). Safe: read under the write lock, and AUTOINCREMENT keeps the number when
-- its task is pruned.
SELECT :now, coalesce((SELECT seq FROM {{schema}}.sqlite_sequence WHERE name = 'dibs_tasks'), 0),
    EXISTS (SELECT 1 FROM dibs_random_orders WHERE NOT ended), coalesce((SELECT version FROM dibs_flow WHERE id = 1), 0)

-- name: fresh_ids
-- Promise: `count` ids that no task has. Parameters: count. Rows: (id).
-- Safe: read under the write lock, and the tasks are inserted in the same transaction.
WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < :count)
SELECT coalesce((SELECT seq FROM {{schema}}.sqlite_sequence WHERE name = 'dibs_tasks'), 0) + n FROM counted

-- name: enqueue
-- Promise: new tasks. Words: rows (one of VALUES for each task). Parameters: the columns of each, in this order. Rows:
-- none.
-- Safe: the write lock is held from `last_id` to the commit, so the ids are free and no key can appear in between.
-- `number_new` follows if a random order is in use.
INSERT INTO dibs_tasks ({{enqueued_columns}}, key, key_content) VALUES {{rows}}

-- name: enqueue_scoped
-- Promise: new tasks, among them tasks with keys that end. Words, parameters, rows, and why it is safe: as in `enqueue`.
-- Three more columns cost 0.9 µs a task.
INSERT INTO dibs_tasks ({{enqueued_columns}}, key, key_content, key_scope, key_until, key_request) VALUES {{rows}}

-- name: enqueue_keyless
-- Promise: new tasks without keys. Words, parameters, rows, and why it is safe: as in `enqueue`.
INSERT INTO dibs_tasks ({{enqueued_columns}}) VALUES {{rows}}

-- fragment: enqueued_columns
-- The columns of a new task, except for those about its key.
id, type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base, backoff_cap, created_at,
run_at, ready_at, trace, tags, expires_at

-- name: enqueue_steps
-- Promise: one new task for each step, under the given id: blocked if it waits for something, else pending or
-- scheduled.
-- Parameters: of each its id, workflow_id, blocked and the task's values; now. Rows: none.
INSERT INTO dibs_tasks (
    id, workflow_id, type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base, backoff_cap,
    created_at, run_at, ready_at, trace, tags, expires_at, limits, group_key, backlog, random_key, weighted_key
) VALUES (
    :id, :workflow_id, :type, :type_version, :queue,
    CASE WHEN :blocked THEN 'blocked'
         WHEN coalesce(:run_at, :now + :delay, :now) > :now THEN 'scheduled' ELSE 'pending' END,
    :priority, :params, :max_attempts, :timeout, :backoff_base, :backoff_cap,
    :now, coalesce(:run_at, :now + :delay, :now), :now, :trace, :tags,
    coalesce(:expires_at, CASE WHEN NOT :blocked THEN :now + :expires_in END), :limits, :group_key, :backlog,
    CASE WHEN {{order_in_use: 'random'}} THEN {{position_of: 'random'}} + dibs_exponential() END,
    CASE WHEN {{order_in_use: 'weighted'}}
        THEN {{position_of: 'weighted'}} + dibs_exponential() / max(:priority + 1, 1) END
)

-- name: enqueue_history
-- Promise: the first entry of the history of each of these new tasks. Parameters: first and last id, now, by. Rows:
-- none.
-- Safe: same transaction as the insert, which gave out exactly the ids in between.
INSERT INTO dibs_history (task_id, event, from_state, to_state, token, by, at)
SELECT id, 'enqueued', NULL, state, 0, :by, :now FROM dibs_tasks WHERE id BETWEEN :first AND :last

-- name: taken_keys
-- Promise: which of these idempotency keys no new task can have: the key is in force, or the request has enqueued its
-- task before. Parameters: items (a JSON array of objects with key, queue, request), now. Rows: (queue, key, request).
-- Indexes: dibs_tasks_key, the primary key of dibs_kept_keys, and dibs_tasks_scoped_keys.
-- Safe: the write lock is held until the tasks are inserted.
WITH asked (asked_key, asked_queue, asked_request) AS MATERIALIZED (
    SELECT value ->> 'key', value ->> 'queue', value ->> 'request' FROM json_each(:items))
SELECT asked_queue, asked_key, asked_request FROM asked
WHERE EXISTS (SELECT 1 FROM dibs_tasks INDEXED BY dibs_tasks_key
              WHERE key = asked_key AND queue = asked_queue AND {{key_in_force}})
   OR EXISTS (SELECT 1 FROM dibs_kept_keys WHERE key = asked_key AND queue = asked_queue AND until > :now)
   OR (asked_request IS NOT NULL
       AND EXISTS (SELECT 1 FROM dibs_tasks INDEXED BY dibs_tasks_scoped_keys
                   WHERE key = asked_key AND queue = asked_queue AND key_request = asked_request
                     AND key_scope IS NOT NULL))

-- name: keep_keys
-- Promise: the keys of these new tasks are kept until their time. Words: rows. Parameters: the columns of each, in this
-- order. Rows: none. Safe: `taken_keys` has shown, under the same write lock, that an older row of the key is past its
-- time.
INSERT INTO dibs_kept_keys (key, queue, until, task_id, type, key_content, priority, max_attempts, created_at)
VALUES {{rows}}
ON CONFLICT (key, queue) DO UPDATE
SET until = excluded.until, task_id = excluded.task_id, type = excluded.type, key_content = excluded.key_content,
    priority = excluded.priority, max_attempts = excluded.max_attempts, created_at = excluded.created_at, state = NULL

-- name: find_keys
-- Promise: the tasks that have these idempotency keys in these queues. Parameters: items (a JSON array of objects with
-- key, queue, request), now. Rows: ('task', key_content, key, key_request, is past its time, task columns).
-- Index: dibs_tasks_key.
WITH asked (asked_key, asked_queue) AS MATERIALIZED (
    SELECT value ->> 'key', value ->> 'queue' FROM json_each(:items))
SELECT 'task', key_content, key, key_request, coalesce(key_until <= :now, 0), {{task}}
FROM asked CROSS JOIN dibs_tasks INDEXED BY dibs_tasks_key
    ON key = asked_key AND queue = asked_queue AND {{key_in_force}}

-- name: find_ended_keys
-- Promise: what else stands in the way of a new task with these idempotency keys: the task that the same request
-- enqueued ('request'), and what is left of a pruned task whose key is kept ('kept').
-- Parameters and rows: as in `find_keys`. Indexes: dibs_tasks_scoped_keys, the primary key of dibs_kept_keys.
WITH asked (asked_key, asked_queue, asked_request) AS MATERIALIZED (
    SELECT value ->> 'key', value ->> 'queue', value ->> 'request' FROM json_each(:items))
SELECT 'kept', key_content, key, NULL, 0, {{kept_task}}
FROM asked CROSS JOIN dibs_kept_keys ON key = asked_key AND queue = asked_queue
WHERE until > :now
UNION ALL
SELECT 'request', key_content, key, key_request, 0, {{task}}
FROM asked CROSS JOIN dibs_tasks INDEXED BY dibs_tasks_scoped_keys
    ON key = asked_key AND queue = asked_queue AND key_request = asked_request AND key_scope IS NOT NULL

-- name: replace
-- Promise: the waiting task has the content of a new one, if it still is in the state that the caller saw and no worker
-- has claimed it: params, priority, due time, expiry, tags and trace. It is due `max_delay` after its creation at the latest.
-- Parameters: id, from_state (pending or scheduled), detail (of the history), type_version, params, priority, delay,
-- run_at, max_delay, key_content, request, trace, tags, expires_at, expires_in, limits, group_key, backlog, now.
-- Rows: history columns, then the task columns; none if the task has started. A task of a backlog is registered again.
-- Index: the primary key. Safe: a claim changes the state under the same lock.
UPDATE dibs_tasks
SET state = CASE WHEN {{due_again}} > :now THEN 'scheduled' ELSE 'pending' END,
    run_at = {{due_again}}, ready_at = :now, parked = parked AND {{due_again}} <= :now AND backlog IS NULL AND :backlog IS NULL,
    limits = :limits, group_key = :group_key, backlog = :backlog,
    type_version = :type_version, params = :params, priority = :priority, key_content = :key_content,
    key_request = :request, trace = :trace, tags = :tags,
    expires_at = coalesce(:expires_at, :now + :expires_in),
    random_key = CASE WHEN {{order_in_use: 'random'}} THEN {{position_of: 'random'}} + dibs_exponential() END,
    weighted_key = CASE WHEN {{order_in_use: 'weighted'}}
        THEN {{position_of: 'weighted'}} + dibs_exponential() / max(:priority + 1, 1) END
WHERE id = :id AND +state = :from_state AND token = 0
RETURNING id, 'replaced', :from_state, state, NULL, token, :detail, {{task}}

-- fragment: due_again
-- When a replaced task is due: as requested, but `max_delay` after its creation at the latest.
min(coalesce(:run_at, :now + :delay, :now), coalesce(created_at + :max_delay, 9223372036854775807))
