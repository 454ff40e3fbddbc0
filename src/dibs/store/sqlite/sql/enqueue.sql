-- New tasks and their idempotency keys.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- fragment: schema
-- The schema of the tables of dibs. It is named where SQLite would take another one: the temporary tables of a
-- connection have a table sqlite_sequence as well, which hides the one of the file. connection.py names another schema
-- where the tasks are elsewhere.
main

-- name: last_id
-- Promise: the moment, the highest task id ever given out (0 before the first), and whether a random order is in use.
-- Parameters: now. Rows: (now, id, numbered). Safe: read under the write lock, and AUTOINCREMENT keeps the number when
-- its task is pruned.
SELECT :now, coalesce((SELECT seq FROM {{schema}}.sqlite_sequence WHERE name = 'dibs_tasks'), 0),
    EXISTS (SELECT 1 FROM dibs_random_orders WHERE NOT ended)

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
INSERT INTO dibs_tasks (
    id, type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base, backoff_cap,
    created_at, run_at, ready_at, key, key_content, trace, tags
) VALUES {{rows}}

-- name: enqueue_steps
-- Promise: one new task for each step, under the given id: blocked if it waits for something, else pending or
-- scheduled.
-- Parameters: of each its id, workflow_id, blocked and the task's values; now. Rows: none.
INSERT INTO dibs_tasks (
    id, workflow_id, type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base, backoff_cap,
    created_at, run_at, ready_at, trace, tags, random_key, weighted_key
) VALUES (
    :id, :workflow_id, :type, :type_version, :queue,
    CASE WHEN :blocked THEN 'blocked'
         WHEN coalesce(:run_at, :now + :delay, :now) > :now THEN 'scheduled' ELSE 'pending' END,
    :priority, :params, :max_attempts, :timeout, :backoff_base, :backoff_cap,
    :now, coalesce(:run_at, :now + :delay, :now), :now, :trace, :tags,
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

-- name: find_keys
-- Promise: the tasks that have these idempotency keys in these queues. Parameters: items (a JSON array of objects with
-- key, queue). Rows: (key_content, key, task columns). Index: dibs_tasks_key.
WITH asked (asked_key, asked_queue) AS (
    SELECT json_extract(value, '$.key'), json_extract(value, '$.queue') FROM json_each(:items))
SELECT key_content, key, {{task}}
FROM asked CROSS JOIN dibs_tasks INDEXED BY dibs_tasks_key ON key = asked_key AND queue = asked_queue
