-- New tasks and their idempotency keys.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: fresh_ids
-- Promise: `count` ids that no task has. Parameters: count. Rows: (id).
SELECT nextval('dibs_tasks_id_seq') FROM generate_series(1, :count::integer)

-- name: enqueue
-- Promise: one new task for each row whose key is free in its queue, pending if it is due and scheduled if not, each
-- with its first entry of the history. Parameters: items (a JSON array of the tasks), now, by.
-- Rows: (place, id, state, created_at) of the inserted tasks; the first of the array has the place 1.
-- Index: dibs_tasks_key decides which task owns a key of a queue. Safe: of many callers with one key and queue, the
-- first to insert wins; the others wait for its commit and leave their row out. Rows are inserted in the order of key
-- and queue, so that two batches with the same keys wait for each other one way round and cannot deadlock.
WITH {{moment}},
given AS MATERIALIZED (
    SELECT nextval('dibs_tasks_id_seq') AS id, task.*
    FROM ROWS FROM (json_to_recordset(:items::json)
        AS (type text, type_version int, queue text, priority int, params text, max_attempts int, timeout bigint,
            backoff_base bigint, backoff_cap bigint, delay bigint, run_at bigint, key text, key_content text,
            trace text, tags text)) WITH ORDINALITY
        AS task (type, type_version, queue, priority, params, max_attempts, timeout, backoff_base, backoff_cap, delay,
                 run_at, key, key_content, trace, tags, place)
),
changed AS (
    INSERT INTO dibs_tasks (id, type, type_version, queue, state, priority, params, max_attempts, timeout,
                            backoff_base, backoff_cap, created_at, run_at, ready_at, key, key_content, trace,
                            tags, random_key, weighted_key)
    SELECT task.id, task.type, task.type_version, task.queue,
           CASE WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now
                THEN 'scheduled' ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.key,
           task.key_content, task.trace, task.tags, {{random_place}},
           {{weighted_place}}
    FROM given AS task, moment
    ORDER BY task.key COLLATE "C", task.queue COLLATE "C", task.id
    ON CONFLICT (key, queue) WHERE key IS NOT NULL DO NOTHING
    RETURNING id AS task_id, 'enqueued' AS event, NULL::text AS from_state, state AS to_state, NULL::text AS by_worker,
        token AS under_token, NULL::text AS detail, created_at
),
{{noted}}
SELECT given.place, changed.task_id, changed.to_state, changed.created_at
FROM changed JOIN given ON given.id = changed.task_id

-- name: enqueue_keyless
-- Promise: one new task for each row, pending if it is due and scheduled if not, each with its first entry of the
-- history. No row has a key, so none can be in conflict: nothing is sorted, nothing is inserted on trial.
-- Parameters: items (a JSON array of the tasks), now, by. Rows: (id, state, created_at); the ids grow in the order of
-- the array.
WITH {{moment}},
changed AS (
    INSERT INTO dibs_tasks (type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base,
                            backoff_cap, created_at, run_at, ready_at, trace, tags, random_key, weighted_key)
    SELECT task.type, task.type_version, task.queue,
           CASE WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now
                THEN 'scheduled' ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.trace, task.tags,
           {{random_place}}, {{weighted_place}}
    FROM moment,
         json_to_recordset(:items::json)
             AS task (type text, type_version int, queue text, priority int, params text, max_attempts int,
                      timeout bigint, backoff_base bigint, backoff_cap bigint, delay bigint, run_at bigint, trace text,
                      tags text)
    RETURNING id AS task_id, 'enqueued' AS event, NULL::text AS from_state, state AS to_state, NULL::text AS by_worker,
        token AS under_token, NULL::text AS detail, created_at
),
{{noted}}
SELECT task_id, to_state, created_at FROM changed

-- name: enqueue_steps
-- Promise: one new task for each step, under the given id: blocked if it waits for something, else pending or
-- scheduled.
-- Parameters: of each its id, workflow_id, blocked and the task's values; now. Rows: none.
WITH {{moment}},
changed AS (
    INSERT INTO dibs_tasks (id, workflow_id, type, type_version, queue, state, priority, params, max_attempts, timeout,
                            backoff_base, backoff_cap, created_at, run_at, ready_at, trace, tags, random_key,
                            weighted_key)
    SELECT task.id, task.workflow_id, task.type, task.type_version, task.queue,
           CASE WHEN task.blocked THEN 'blocked'
                WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now THEN 'scheduled'
                ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.trace, task.tags,
           {{random_place}}, {{weighted_place}}
    FROM json_to_recordset(:items::json)
             AS task (id bigint, workflow_id bigint, blocked boolean, type text, type_version int, queue text,
                      priority int, params text, max_attempts int, timeout bigint, backoff_base bigint,
                      backoff_cap bigint, delay bigint, run_at bigint, trace text, tags text),
         moment
    RETURNING id AS task_id, 'enqueued' AS event, NULL::text AS from_state, state AS to_state, NULL::text AS by_worker,
        token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT task_id FROM changed

-- name: find_keys
-- Promise: the tasks that have these idempotency keys in these queues. Parameters: items (a JSON array of objects with
-- key, queue). Rows: (key_content, key, task columns). Index: dibs_tasks_key.
-- A separate statement: it must see the row that another transaction committed while `enqueue` waited.
SELECT task.key_content, task.key, {{task}}
FROM json_to_recordset(:items::json) AS asked (key text, queue text)
JOIN dibs_tasks AS task ON task.key = asked.key AND task.queue = asked.queue
