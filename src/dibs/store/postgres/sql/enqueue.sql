-- New tasks and their idempotency keys.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: fresh_ids
-- Promise: `count` ids that no task has. Parameters: count. Rows: (id).
SELECT nextval('dibs_tasks_id_seq') FROM generate_series(1, :count::integer)

-- name: enqueue
-- Promise: one new task for each row whose key is free in its queue, pending if it is due and scheduled if not, each
-- with its first entry of the history. Parameters: items (a JSON array of the tasks), flow_version, now, by.
-- Words: kept (`keep_keys`, if a row has a key that is kept until a time).
-- Rows: (place, id, state, created_at) of the inserted tasks; the first of the array has the place 1.
-- Index: dibs_tasks_key decides which task owns a key of a queue. Safe: of many callers with one key and queue, the
-- first to insert wins; the others wait for its commit and leave their row out. Rows are inserted in the order of key
-- and queue, so that two batches with the same keys wait for each other one way round and cannot deadlock.
-- A key that is kept until a time is in dibs_kept_keys from the insert of its task, so a client that does not find the
-- pruned task any more finds the kept key. LIMIT keeps the planner, which expects a hundred rows of any JSON, from
-- reading the whole table for a single key.
-- flow_version: if the limits have another version, nothing is inserted, and the only row is (0, NULL, NULL, NULL).
WITH {{moment}},
given AS MATERIALIZED (
    SELECT nextval('dibs_tasks_id_seq') AS id, task.*
    FROM ROWS FROM (json_to_recordset(:items::json)
        AS (type text, type_version int, queue text, priority int, params text, max_attempts int, timeout bigint,
            backoff_base bigint, backoff_cap bigint, delay bigint, run_at bigint, key text, key_content text,
            trace text, tags text, expires_at bigint, expires_in bigint, key_scope text, key_for bigint, request text,
            limits text, group_key text, backlog text)) WITH ORDINALITY
        AS task (type, type_version, queue, priority, params, max_attempts, timeout, backoff_base, backoff_cap, delay,
                 run_at, key, key_content, trace, tags, expires_at, expires_in, key_scope, key_for, request, limits,
                 group_key, backlog, place)
    WHERE {{same_limits}}
),
changed AS (
    INSERT INTO dibs_tasks (id, type, type_version, queue, state, priority, params, max_attempts, timeout,
                            backoff_base, backoff_cap, created_at, run_at, ready_at, key, key_content, trace,
                            tags, expires_at, limits, group_key, backlog, parked, random_key, weighted_key, key_scope,
                            key_until, key_request)
    SELECT task.id, task.type, task.type_version, task.queue,
           CASE WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now
                THEN 'scheduled' ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.key,
           task.key_content, task.trace, task.tags, coalesce(task.expires_at, moment.now + task.expires_in),
           task.limits, task.group_key, task.backlog, {{registered}}, {{random_place}}, {{weighted_place}},
           task.key_scope, moment.now + task.key_for, task.request
    FROM given AS task, moment
    WHERE NOT coalesce((SELECT true FROM dibs_kept_keys AS kept
                        WHERE kept.key = task.key AND kept.queue = task.queue AND kept.until > moment.now LIMIT 1), false)
      AND (task.request IS NULL
           OR NOT coalesce((SELECT true FROM dibs_tasks AS before
                            WHERE before.key = task.key AND before.queue = task.queue
                              AND before.key_request = task.request AND before.key_scope IS NOT NULL LIMIT 1), false))
    ORDER BY task.key COLLATE "C", task.queue COLLATE "C", task.id
    ON CONFLICT (key, queue) WHERE {{key_in_force}} DO NOTHING
    RETURNING id AS task_id, 'enqueued' AS event, NULL::text AS from_state, state AS to_state, NULL::text AS by_worker,
        token AS under_token, NULL::text AS detail, created_at
),
{{kept}}
{{noted}}
SELECT given.place, changed.task_id, changed.to_state, changed.created_at
FROM changed JOIN given ON given.id = changed.task_id
UNION ALL
SELECT 0, NULL, NULL, NULL WHERE NOT {{same_limits}}

-- fragment: same_limits
-- A condition: the limits and settings have the version by which the caller has chosen the backlogs of the tasks.
-- Parameters: flow_version. Safe: the version is read in the snapshot of the statement that inserts; a change of the
-- limits that is committed later finds the tasks, or waits for their transaction (see `task_writers`).
coalesce((SELECT version FROM dibs_flow), 0) = :flow_version::bigint

-- fragment: registered
-- The column `parked` of a new task: a task of a backlog that waits is registered by the signal that follows the insert.
task.backlog IS NOT NULL AND coalesce(task.run_at, moment.now + task.delay, moment.now) <= moment.now

-- fragment: keep_keys
-- The part of `enqueue` that keeps the keys of the new tasks until their time. An older row of the key is past its time.
kept AS (
    INSERT INTO dibs_kept_keys (key, queue, until, task_id, type, key_content, priority, max_attempts, created_at)
    SELECT given.key, given.queue, changed.created_at + given.key_for, given.id, given.type, given.key_content,
           given.priority, given.max_attempts, changed.created_at
    FROM changed JOIN given ON given.id = changed.task_id
    WHERE given.key_for IS NOT NULL
    ON CONFLICT (key, queue) DO UPDATE
    SET until = excluded.until, task_id = excluded.task_id, type = excluded.type, key_content = excluded.key_content,
        priority = excluded.priority, max_attempts = excluded.max_attempts, created_at = excluded.created_at,
        state = NULL
),

-- name: enqueue_keyless
-- Promise: one new task for each row, pending if it is due and scheduled if not, each with its first entry of the
-- history. No row has a key, so none can be in conflict: nothing is sorted, nothing is inserted on trial.
-- Parameters: items (a JSON array of the tasks), flow_version, now, by. Rows: (id, state, created_at); the ids grow in
-- the order of the array. None if the limits have another version (see `same_limits`).
WITH {{moment}},
changed AS (
    INSERT INTO dibs_tasks (type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base,
                            backoff_cap, created_at, run_at, ready_at, trace, tags, expires_at, limits, group_key,
                            backlog, parked, random_key, weighted_key)
    SELECT task.type, task.type_version, task.queue,
           CASE WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now
                THEN 'scheduled' ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.trace, task.tags,
           coalesce(task.expires_at, moment.now + task.expires_in), task.limits, task.group_key, task.backlog,
           {{registered}}, {{random_place}}, {{weighted_place}}
    FROM moment,
         json_to_recordset(:items::json)
             AS task (type text, type_version int, queue text, priority int, params text, max_attempts int,
                      timeout bigint, backoff_base bigint, backoff_cap bigint, delay bigint, run_at bigint, trace text,
                      tags text, expires_at bigint, expires_in bigint, limits text, group_key text, backlog text)
    WHERE {{same_limits}}
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
                            backoff_base, backoff_cap, created_at, run_at, ready_at, trace, tags, expires_at,
                            limits, group_key, backlog, random_key, weighted_key)
    SELECT task.id, task.workflow_id, task.type, task.type_version, task.queue,
           CASE WHEN task.blocked THEN 'blocked'
                WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now THEN 'scheduled'
                ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.trace, task.tags,
           coalesce(task.expires_at, CASE WHEN NOT task.blocked THEN moment.now + task.expires_in END),
           task.limits, task.group_key, task.backlog, {{random_place}}, {{weighted_place}}
    FROM json_to_recordset(:items::json)
             AS task (id bigint, workflow_id bigint, blocked boolean, type text, type_version int, queue text,
                      priority int, params text, max_attempts int, timeout bigint, backoff_base bigint,
                      backoff_cap bigint, delay bigint, run_at bigint, trace text, tags text,
                      expires_at bigint, expires_in bigint, limits text, group_key text, backlog text),
         moment
    RETURNING id AS task_id, 'enqueued' AS event, NULL::text AS from_state, state AS to_state, NULL::text AS by_worker,
        token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT task_id FROM changed

-- name: find_keys
-- Promise: the tasks that have these idempotency keys in these queues. Parameters: items (a JSON array of objects with
-- key, queue, request), now. Rows: ('task', key_content, key, key_request, is past its time, task columns).
-- Index: dibs_tasks_key, one probe for each key: LIMIT keeps the planner, which expects a hundred rows of any JSON, from
-- reading a table of some thousand tasks for a single key.
-- A separate statement: it must see the row that another transaction committed while `enqueue` waited.
WITH {{moment}}
SELECT 'task', task.key_content, task.key, task.key_request, coalesce(task.key_until <= (SELECT now FROM moment), false),
    {{task}}
FROM (SELECT key AS asked_key, queue AS asked_queue
      FROM json_to_recordset(:items::json) AS asked (key text, queue text)) AS asked
CROSS JOIN LATERAL (
    SELECT * FROM dibs_tasks WHERE key = asked_key AND queue = asked_queue AND {{key_in_force}} LIMIT 1) AS task

-- name: find_ended_keys
-- Promise: what else stands in the way of a new task with these idempotency keys: the task that the same request
-- enqueued ('request'), and what is left of a pruned task whose key is kept ('kept').
-- Parameters and rows: as in `find_keys`. Indexes: dibs_tasks_scoped_keys, the primary key of dibs_kept_keys.
WITH {{moment}},
asked (asked_key, asked_queue, asked_request) AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS asked (key text, queue text, request text)
)
SELECT 'kept', key_content, key, NULL, false, {{kept_task}}
FROM asked CROSS JOIN LATERAL (
    SELECT * FROM dibs_kept_keys
    WHERE key = asked_key AND queue = asked_queue AND until > (SELECT now FROM moment) LIMIT 1) AS kept
UNION ALL
SELECT 'request', task.key_content, task.key, task.key_request, false, {{task}}
FROM asked CROSS JOIN LATERAL (
    SELECT * FROM dibs_tasks
    WHERE key = asked_key AND queue = asked_queue AND key_request = asked_request AND key_scope IS NOT NULL
    LIMIT 1) AS task

-- name: replace
-- Promise: each waiting task has the content of a new one, if it still is in the state that the caller saw and no
-- worker has claimed it: params, priority, due time, expiry, tags and trace. It is due `max_delay` after its creation at the
-- latest.
-- Parameters: items (a JSON array of objects with id, from_state (pending or scheduled), detail (of the history),
-- type_version, params, priority, delay, run_at, max_delay, key_content, request, trace, tags,
-- expires_at, expires_in, limits, group_key, backlog), now, by. A task of a backlog is registered again.
-- Rows: history columns, then the task columns; none for a task that has started. Index: the primary key.
-- Safe: state and token are compared again under the row's lock, so either the claim comes first and the task keeps its
-- content, or the claim hands out the new content. The rows are locked in the order of their ids.
WITH {{moment}},
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items
        (id bigint, from_state text, detail text, type_version int, params text, priority int, delay bigint,
         run_at bigint, max_delay bigint, key_content text, request text, trace text, tags text, expires_at bigint,
         expires_in bigint, limits text, group_key text, backlog text)
),
waiting AS MATERIALIZED (
    SELECT task.id, least(coalesce(items.run_at, moment.now + items.delay, moment.now),
                          task.created_at + items.max_delay) AS due
    FROM dibs_tasks AS task JOIN items ON items.id = task.id, moment
    WHERE task.id = ANY(ARRAY(SELECT id FROM items)) AND {{unindexed: task.state}} = items.from_state AND task.token = 0
    ORDER BY task.id FOR NO KEY UPDATE OF task
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN waiting.due > moment.now THEN 'scheduled' ELSE 'pending' END,
        run_at = waiting.due, ready_at = moment.now, parked = task.parked AND waiting.due <= moment.now
            AND task.backlog IS NULL AND items.backlog IS NULL,
        limits = items.limits, group_key = items.group_key, backlog = items.backlog,
        type_version = items.type_version, params = items.params, priority = items.priority,
        key_content = items.key_content, key_request = items.request, trace = items.trace, tags = items.tags,
        expires_at = coalesce(items.expires_at, moment.now + items.expires_in),
        random_key = {{random_place}},
        weighted_key = (SELECT position FROM dibs_random_orders WHERE kind = 'weighted' AND NOT ended)
            - ln(1 - random()) / greatest(items.priority::bigint + 1, 1)
    FROM waiting, items, moment
    WHERE task.id = waiting.id AND items.id = waiting.id
    RETURNING task.id AS task_id, 'replaced' AS event, items.from_state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, items.detail AS detail, {{task}}
),
{{noted}}
SELECT * FROM changed
