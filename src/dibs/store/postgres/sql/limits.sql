-- Claims of tasks with limits and of tasks of fair queues.
-- Locks: the row of dibs_flow (`lock_flow`), after the roots of workflow trees and after tasks; then rows of
-- dibs_counters, dibs_backlogs, dibs_groups, dibs_flow_settings and dibs_signals, which only its holder changes. A
-- statement that takes tasks skips the locked ones (SKIP LOCKED), so the holder waits for nobody.

-- name: has_limited
-- Promise: whether a claim with these filters may find work with limits. Parameters and words as in `limited_work`.
-- Rows: (found).
WITH {{moment}} {{limited_work}}

-- name: send_signals
-- Promise: the next claim registers that tasks of these backlogs wait. Parameters: items (a JSON array of objects with
-- backlog, queue, type, group_key, limits, priority, head). Rows: none.
-- Safe: rows are only added, so that no enqueue waits for another one or for a claim.
INSERT INTO dibs_signals (backlog, queue, type, group_key, limits, priority, head)
SELECT backlog, queue, type, group_key, limits, priority, head
FROM json_to_recordset(:items::json)
    AS signal (backlog text, queue text, type text, group_key text, limits text, priority integer, head bigint)

-- name: take_signals
-- Promise: up to `limit` signals, which are deleted. Words: limit. Rows: (backlog, queue, type, group, limits, priority,
-- head). Safe: the caller holds the lock of dibs_flow, so no other transaction deletes signals.
DELETE FROM dibs_signals WHERE id = ANY (ARRAY(SELECT id FROM dibs_signals ORDER BY id LIMIT {{limit}}))
RETURNING backlog, queue, type, group_key, limits, priority, head

-- name: register_tasks
-- Promise: up to `limit` tasks that wait and are not registered are marked as registered. Words: limit. Rows as in
-- `take_signals`, the task's id as head. Index: dibs_tasks_unregistered.
-- Safe: tasks that another transaction has locked are skipped; the next claim registers them.
UPDATE dibs_tasks AS task SET parked = true
WHERE id = ANY (ARRAY(
    SELECT id FROM dibs_tasks WHERE state = 'pending' AND backlog IS NOT NULL AND NOT parked
    ORDER BY id LIMIT {{limit}} FOR UPDATE SKIP LOCKED))
RETURNING backlog, queue, type, group_key, limits, priority, id

-- name: register_backlogs
-- Promise: these backlogs exist, and are open if they were empty; their first task is no later than the given one. In a
-- fair queue a group that had no task waiting has at least the turn of the queue. Parameters: items (a JSON array of
-- objects with name, queue, type, group_key, limits, limit_names, counters, fair, priority, head). Rows: none.
-- Safe: the caller holds the lock of dibs_flow.
INSERT INTO dibs_backlogs AS known (name, queue, type, group_key, limits, limit_names, counters, priority, head, turn)
SELECT item.name, item.queue, item.type, item.group_key, item.limits, item.limit_names, item.counters, item.priority,
    item.head,
    CASE WHEN item.fair THEN greatest(
        (SELECT turn FROM dibs_groups AS served
         WHERE served.queue = item.queue COLLATE "C" AND served.group_key = item.group_key COLLATE "C"),
        (SELECT turn FROM dibs_flow_settings AS setting
         WHERE setting.scope = 'queue' AND setting.name = item.queue COLLATE "C"), 0) ELSE 0 END
FROM json_to_recordset(:items::json)
    AS item (name text, queue text, type text, group_key text, limits text, limit_names text, counters text, fair boolean,
             priority integer, head bigint)
ON CONFLICT (name) DO UPDATE SET
    priority = CASE WHEN known.closed_on = '' THEN excluded.priority ELSE greatest(known.priority, excluded.priority) END,
    head = CASE WHEN known.closed_on = '' OR excluded.priority > known.priority THEN excluded.head
                WHEN excluded.priority = known.priority THEN least(known.head, excluded.head) ELSE known.head END,
    turn = CASE WHEN known.closed_on = '' THEN excluded.turn ELSE known.turn END,
    waited_on = CASE WHEN known.closed_on = '' THEN NULL ELSE known.waited_on END,
    waits = CASE WHEN known.closed_on = '' THEN NULL ELSE known.waits END,
    closed_on = nullif(known.closed_on, '')

-- name: raise_turns
-- Promise: all backlogs of the groups of these backlogs have at least the turn that these have: the tasks of a group that
-- wait for a limit save no turns up while other tasks of the group begin to wait. Parameters: names. Rows: none.
-- Safe: the caller holds the lock of dibs_flow.
WITH raised AS MATERIALIZED (
    SELECT queue, group_key, max(turn) AS turn FROM dibs_backlogs WHERE name {{in_text: names}} GROUP BY queue, group_key)
UPDATE dibs_backlogs AS backlog SET turn = raised.turn
FROM raised
WHERE backlog.queue = raised.queue AND backlog.group_key = raised.group_key AND backlog.turn < raised.turn
  AND backlog.queue = ANY (ARRAY(SELECT queue FROM raised))
  AND backlog.group_key = ANY (ARRAY(SELECT group_key FROM raised))

-- name: return_permits
-- Promise: the counters have so many users less. Parameters: items (a JSON array of objects with name, count). Rows:
-- none. Safe: see `ended_claims`.
UPDATE dibs_counters AS counter SET used = counter.used - item.count
FROM json_to_recordset(:items::json) AS item (name text, count integer)
WHERE {{named: counter}} AND counter.name = item.name COLLATE "C"

-- fragment: named
-- A condition: the row has the name of one of the items. Beside a join with the items, because for a join alone the planner
-- expects a hundred items, and reads the whole table if that has some thousand rows.
{{argument}}.name = ANY (ARRAY(SELECT name COLLATE "C" FROM json_to_recordset(:items::json) AS names (name text)))

-- name: open_backlogs
-- Promise: the open backlogs that pass the filters and whose queue is not paused, the first `limit` of each queue and
-- type. Parameters: queues, types. Words: limit, in_queues, in_types, unlimited. Rows: backlog columns.
-- Index: dibs_backlogs_open: the recursion jumps from each queue and type to the next.
WITH RECURSIVE pair AS (
    (SELECT queue, type FROM dibs_backlogs WHERE closed_on IS NULL ORDER BY queue, type LIMIT 1)
    UNION ALL
    SELECT next.queue, next.type FROM pair CROSS JOIN LATERAL (
        SELECT queue, type FROM dibs_backlogs
        WHERE closed_on IS NULL AND (dibs_backlogs.queue, dibs_backlogs.type) > (pair.queue, pair.type)
        ORDER BY queue, type LIMIT 1
    ) AS next
)
SELECT {{backlog}}
FROM pair CROSS JOIN LATERAL (
    SELECT * FROM dibs_backlogs
    WHERE closed_on IS NULL AND dibs_backlogs.queue = pair.queue AND dibs_backlogs.type = pair.type {{unlimited}}
    ORDER BY priority DESC, turn, head LIMIT {{limit}}
) AS backlog
WHERE EXISTS (SELECT FROM (SELECT pair.queue, pair.type) AS wanted WHERE {{open_pair: wanted}})

-- name: open_watchers
-- Promise: the first backlogs that wait for these counters are open: of each queue and type as many as the counter has
-- room. Parameters: items (a JSON array of objects with name, room). Rows: (name).
-- Index: dibs_backlogs_closed: the recursion jumps from each queue and type to the next.
-- Safe: the caller holds the lock of dibs_flow. One backlog for each queue and type, because a backlog without workers
-- would otherwise keep the room from others.
UPDATE dibs_backlogs AS opened SET closed_on = NULL
WHERE name = ANY (ARRAY(
    SELECT watcher.name FROM {{watchers_of_counters: name}}))
RETURNING name

-- fragment: watchers_of_counters
-- The first backlogs that wait for these counters: of each queue and type as many as the counter has room. Parameters:
-- items (a JSON array of objects with name, room). Index: dibs_backlogs_closed: the recursion jumps from each queue and
-- type to the next.
json_to_recordset(:items::json) AS item (name text, room integer)
CROSS JOIN LATERAL (
    WITH RECURSIVE pair AS (
        (SELECT queue, type FROM dibs_backlogs WHERE closed_on = item.name COLLATE "C" AND closed_on > ''
         ORDER BY queue, type LIMIT 1)
        UNION ALL
        SELECT next.queue, next.type FROM pair CROSS JOIN LATERAL (
            SELECT queue, type FROM dibs_backlogs
            WHERE closed_on = item.name COLLATE "C" AND closed_on > ''
              AND (dibs_backlogs.queue, dibs_backlogs.type) > (pair.queue, pair.type)
            ORDER BY queue, type LIMIT 1
        ) AS next
    )
    SELECT queue, type FROM pair
) AS pair
CROSS JOIN LATERAL (
    SELECT {{argument}} FROM dibs_backlogs
    WHERE closed_on = item.name COLLATE "C" AND closed_on > ''
      AND dibs_backlogs.queue = pair.queue AND dibs_backlogs.type = pair.type
    ORDER BY priority DESC, turn, head LIMIT item.room
) AS watcher

-- name: watchers
-- Promise: the first backlogs that wait for these counters, as `open_watchers` would open them, and that pass the filters.
-- Parameters: items (a JSON array of objects with name, room), queues, types. Words: in_queues, in_types, unlimited. Rows:
-- backlog columns.
SELECT {{backlog}}
FROM (SELECT watcher.* FROM {{watchers_of_counters: *}}) AS backlog
WHERE {{open_pair: backlog}} {{unlimited}}

-- name: read_backlogs
-- Promise: the first tasks of these backlogs. Parameters: names, min_attempts_left. Words: order, limit. Rows: (backlog,
-- id, priority). Index: dibs_tasks_backlog or dibs_tasks_backlog_age. Safe: a read; `claim_limited` locks the tasks.
WITH {{moment}}
SELECT wanted.name, task.id, task.priority
FROM unnest(:names::text[]) AS wanted (name) CROSS JOIN LATERAL (
    SELECT id, priority FROM dibs_tasks
    WHERE state = 'pending' AND backlog IS NOT NULL AND backlog = wanted.name COLLATE "C"
      AND attempts_left >= :min_attempts_left::int {{not_expired}}
    ORDER BY {{order}} LIMIT {{limit}}
) AS task

-- name: claim_limited
-- Promise: these tasks now belong to the given workers, each under its next token, and are counted by the given counters.
-- Parameters: items (a JSON array of objects with id, permits, worker_id, incarnation, waits), lease, ahead,
-- request, counted_at, now, by. Rows: history columns, task columns; none for a task that is not pending any more. The
-- detail says how long the task waited for which limit. counted_at: the time for which a rate has counted the claims, or
-- NULL; the claims have that time, so that the times of two claims are as far apart as the rate demands.
-- Safe: the tasks are locked, unless another transaction holds their lock, and their state is checked under the lock. The
-- counters cannot change between the choice of the tasks and the commit, because the caller holds the lock of dibs_flow.
-- A task whose last claim is still counted (`permits`) is left out.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:counted_at::bigint, :now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
),
items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json)
        AS items (id bigint, permits text, worker_id text, incarnation text, waits text)
),
picked AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE id = ANY (ARRAY(SELECT id FROM items)) AND {{unindexed: state}} = 'pending' AND backlog IS NOT NULL
      AND permits IS NULL
    FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = items.worker_id, incarnation = items.incarnation,
        claimed_at = moment.now, lease_until = moment.now + :lease, ahead = :ahead, request = :request, progress = NULL,
        progress_message = NULL, parked = false, permits = items.permits
    FROM items, moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM picked)) AND task.id = items.id
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token,
        CASE WHEN items.waits IS NOT NULL THEN {{waited}} END AS detail,
        {{task}}
),
{{noted}}
SELECT * FROM changed

-- fragment: waited
-- How long the task waited for limits, as JSON: the last limit, all seconds, and those of each limit if there are several;
-- NULL if the task has begun to wait after the last wait of its backlog. A wait lasts until the next one begins.
(SELECT CASE count(*) WHEN 0 THEN NULL
             WHEN 1 THEN json_build_object('limit', max(name), 'waited', sum(micros)::float8 / 1e6)
             ELSE json_build_object(
                 'limit', max(name) FILTER (WHERE last = newest), 'waited', sum(micros)::float8 / 1e6,
                 'waits', json_object_agg(name, micros::float8 / 1e6 ORDER BY last)) END::text
 FROM (SELECT name, sum(greatest(until - greatest(since, task.ready_at), 0)) AS micros, max(nth) AS last,
              max(max(nth)) OVER () AS newest
       FROM (SELECT nth, wait ->> 0 AS name, (wait ->> 1)::bigint AS since,
                    coalesce(lead((wait ->> 1)::bigint) OVER (ORDER BY nth), moment.now) AS until,
                    lead(nth) OVER (ORDER BY nth) IS NULL AS lasts
             FROM json_array_elements(items.waits::json) WITH ORDINALITY AS found (wait, nth)) AS waits
       WHERE name IS NOT NULL AND (lasts OR until > greatest(since, task.ready_at))
       GROUP BY name) AS limits)

-- name: close_backlogs
-- Promise: the backlogs have these first tasks, and are closed on this counter (NULL: open; empty: without tasks).
-- Parameters: items (a JSON array of objects with name, closed_on, priority, head, waits, begins, wait_for), now. Rows:
-- none. Safe: the caller holds the lock of dibs_flow.
WITH {{moment}}
UPDATE dibs_backlogs AS backlog
SET priority = item.priority, head = item.head, closed_on = item.closed_on,
    waited_since = CASE WHEN item.closed_on = backlog.waited_on THEN backlog.waited_since ELSE moment.now END,
    waited_on = nullif(item.closed_on, ''),
    waits = CASE WHEN item.begins
        THEN (item.waits::jsonb || jsonb_build_array(jsonb_build_array(item.wait_for, moment.now)))::text
        ELSE item.waits END
FROM moment, json_to_recordset(:items::json)
    AS item (name text, closed_on text, priority integer, head bigint, waits text, begins boolean, wait_for text)
WHERE {{named: backlog}} AND backlog.name = item.name COLLATE "C"

-- name: use_counters
-- Promise: the counters have so many users more, and the rates their new times. Parameters: items (a JSON array of
-- objects with name, limit_name, group_key, taken, allowed_at, opens_at), now. Rows: none.
-- Safe: the caller holds the lock of dibs_flow.
WITH {{moment}}
INSERT INTO dibs_counters AS known (name, limit_name, group_key, used, allowed_at, opens_at, noted_at)
SELECT name, limit_name, group_key, taken, allowed_at, opens_at, moment.now
FROM moment, json_to_recordset(:items::json)
    AS item (name text, limit_name text, group_key text, taken integer, allowed_at bigint, opens_at bigint)
ON CONFLICT (name) DO UPDATE SET used = known.used + excluded.used, allowed_at = excluded.allowed_at,
    opens_at = excluded.opens_at, noted_at = excluded.noted_at

-- name: advance_groups
-- Promise: the groups have these turns. Parameters: items (a JSON array of objects with queue, group_key, turn). Rows:
-- none. Safe: the caller holds the lock of dibs_flow.
INSERT INTO dibs_groups AS known (queue, group_key, turn)
SELECT queue, group_key, turn
FROM json_to_recordset(:items::json) AS item (queue text, group_key text, turn float8)
ON CONFLICT (queue, group_key) DO UPDATE SET turn = excluded.turn

-- name: advance_backlogs
-- Promise: all backlogs of the groups have these turns. Parameters as in `advance_groups`. Rows: none.
-- Safe: the caller holds the lock of dibs_flow.
UPDATE dibs_backlogs AS backlog SET turn = item.turn
FROM json_to_recordset(:items::json) AS item (queue text, group_key text, turn float8)
WHERE backlog.queue = item.queue COLLATE "C" AND backlog.group_key = item.group_key COLLATE "C"
  AND backlog.queue = ANY (ARRAY(
      SELECT queue COLLATE "C" FROM json_to_recordset(:items::json) AS queues (queue text)))
  AND backlog.group_key = ANY (ARRAY(
      SELECT group_key COLLATE "C" FROM json_to_recordset(:items::json) AS groups (group_key text)))

-- name: advance_queues
-- Promise: the fair queues have reached these turns. Parameters: items (a JSON array of objects with name, turn). Rows:
-- none. Safe: the caller holds the lock of dibs_flow.
UPDATE dibs_flow_settings AS setting SET turn = greatest(setting.turn, item.turn)
FROM json_to_recordset(:items::json) AS item (name text, turn float8)
WHERE setting.scope = 'queue' AND {{named: setting}} AND setting.name = item.name COLLATE "C"

-- name: adapt_backlogs
-- Promise: the backlogs have these limits, and are open unless they are empty; in a fair queue they have at least the turn
-- of the queue. Parameters: items (a JSON array of objects with name, limit_names, counters, fair). Rows: none.
-- Safe: the caller holds the lock of dibs_flow.
UPDATE dibs_backlogs AS backlog
SET limit_names = item.limit_names, counters = item.counters,
    closed_on = CASE WHEN backlog.closed_on = '' THEN '' END,
    turn = CASE WHEN item.fair THEN greatest(
        backlog.turn,
        (SELECT served.turn FROM dibs_groups AS served
         WHERE served.queue = backlog.queue AND served.group_key = backlog.group_key),
        (SELECT setting.turn FROM dibs_flow_settings AS setting
         WHERE setting.scope = 'queue' AND setting.name = backlog.queue)) ELSE 0 END
FROM json_to_recordset(:items::json) AS item (name text, limit_names text, counters text, fair boolean)
WHERE backlog.name = item.name COLLATE "C"

-- name: task_writers
-- Promise: the open transactions that have begun to write tasks. Rows: (virtual transaction).
-- Safe: a statement that writes tasks locks the table before it takes its snapshot. So a transaction that is not among
-- the rows, and writes tasks later, sees what was committed before this statement.
SELECT DISTINCT virtualtransaction FROM pg_locks {{writes_tasks}}

-- name: writers_left
-- Promise: which of these transactions are still open. Parameters: writers. Rows: (virtual transaction).
SELECT DISTINCT virtualtransaction FROM pg_locks {{writes_tasks}} AND virtualtransaction = ANY(:writers::text[])

-- fragment: writes_tasks
-- The lock of a table that each transaction keeps that has inserted, changed or deleted rows of it.
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND relation = 'dibs_tasks'::regclass
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid()

-- name: pause_briefly
-- Promise: 20 milliseconds pass. Rows: one.
SELECT 1 FROM pg_sleep(0.02)

-- name: settle_tasks
-- Promise: these tasks wait in these backlogs from now on, as soon as they are pending. Parameters: items (a JSON array
-- of objects with id, backlog, group_key). Rows: (id). Index: the primary key.
-- Safe: the caller has locked the tasks. The claim of plain tasks checks under the lock that a task has no backlog.
UPDATE dibs_tasks AS task SET backlog = item.backlog, group_key = item.group_key, parked = false
FROM json_to_recordset(:items::json) AS item (id bigint, backlog text, group_key text)
WHERE task.id = ANY (ARRAY(SELECT id FROM json_to_recordset(:items::json) AS ids (id bigint)))
  AND task.id = item.id AND task.backlog IS NULL
RETURNING task.id
