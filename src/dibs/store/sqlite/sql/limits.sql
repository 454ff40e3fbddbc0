-- Claims of tasks with limits and of tasks of fair queues.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: has_limited
-- Promise: whether a claim with these filters may find work with limits: tasks of an open backlog, or something to
-- register or to subtract first. Parameters: queues, types, now. Words: in_queues, in_types, unlimited. Rows: (1), or
-- none. A store that never had a limit pays for one look at an empty table.
SELECT 1 FROM dibs_flow WHERE EXISTS (SELECT 1 FROM dibs_signals)
    OR EXISTS (SELECT 1 FROM dibs_tasks INDEXED BY dibs_tasks_unregistered
               WHERE state = 'pending' AND backlog IS NOT NULL AND parked = 0)
    OR EXISTS (SELECT 1 FROM dibs_tasks INDEXED BY dibs_tasks_returning WHERE permits IS NOT NULL AND state <> 'claimed')
    OR EXISTS (SELECT 1 FROM dibs_counters INDEXED BY dibs_counters_opening
               WHERE opens_at IS NOT NULL AND opens_at <= :now)
    OR EXISTS (SELECT 1 FROM dibs_counters INDEXED BY dibs_counters_noted
               WHERE opens_at IS NOT NULL AND noted_at > :now + {{clock_slack}})
    OR EXISTS (SELECT 1 FROM dibs_backlogs WHERE closed_on IS NULL {{in_queues}} {{in_types}} {{unlimited}})

-- name: enqueue_limited
-- Promise: new tasks with limits, or of fair queues. Words: rows (one of VALUES for each task). Parameters: the columns
-- of each, in this order. Rows: none. Safe: as `enqueue`.
INSERT INTO dibs_tasks (
    {{enqueued_columns}}, key, key_content, key_scope, key_until, key_request, limits, group_key, backlog, parked
) VALUES {{rows}}

-- name: send_signals
-- Promise: the next claim registers that tasks of these backlogs wait. Parameters: items (a JSON array of objects with
-- backlog, queue, type, group_key, limits, priority, head). Rows: none.
INSERT INTO dibs_signals (backlog, queue, type, group_key, limits, priority, head)
SELECT value ->> 'backlog', value ->> 'queue', value ->> 'type', value ->> 'group_key', value ->> 'limits',
    value ->> 'priority', value ->> 'head'
FROM json_each(:items)

-- name: take_signals
-- Promise: up to `limit` signals, which are deleted. Words: limit. Rows: (backlog, queue, type, group, limits, priority,
-- head).
DELETE FROM dibs_signals WHERE id IN (SELECT id FROM dibs_signals ORDER BY id LIMIT {{limit}})
RETURNING backlog, queue, type, group_key, limits, priority, head

-- name: register_tasks
-- Promise: up to `limit` tasks that wait and are not registered are marked as registered. Words: limit. Rows as in
-- `take_signals`, the task's id as head. Index: dibs_tasks_unregistered.
UPDATE dibs_tasks SET parked = 1
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_unregistered
             WHERE state = 'pending' AND backlog IS NOT NULL AND parked = 0 ORDER BY id LIMIT {{limit}})
RETURNING backlog, queue, type, group_key, limits, priority, id

-- name: register_backlogs
-- Promise: these backlogs exist, and are open if they were empty; their first task is no later than the given one. In a
-- fair queue a group that had no task waiting has at least the turn of the queue. Parameters: items (a JSON array of
-- objects with name, queue, type, group_key, limits, limit_names, counters, fair, priority, head). Rows: none.
INSERT INTO dibs_backlogs AS known (name, queue, type, group_key, limits, limit_names, counters, priority, head, turn)
SELECT item ->> 'name', item ->> 'queue', item ->> 'type', item ->> 'group_key', item ->> 'limits',
    item ->> 'limit_names', item ->> 'counters', item ->> 'priority', item ->> 'head',
    CASE WHEN item ->> 'fair' THEN max(
        coalesce((SELECT turn FROM dibs_groups
                  WHERE queue = item ->> 'queue' AND group_key = item ->> 'group_key'), 0),
        coalesce((SELECT turn FROM dibs_flow_settings WHERE scope = 'queue' AND name = item ->> 'queue'), 0)
    ) ELSE 0 END
FROM (SELECT value AS item FROM json_each(:items)) WHERE true
ON CONFLICT (name) DO UPDATE SET
    priority = CASE WHEN known.closed_on = '' THEN excluded.priority ELSE max(known.priority, excluded.priority) END,
    head = CASE WHEN known.closed_on = '' OR excluded.priority > known.priority THEN excluded.head
                WHEN excluded.priority = known.priority THEN min(known.head, excluded.head) ELSE known.head END,
    turn = CASE WHEN known.closed_on = '' THEN excluded.turn ELSE known.turn END,
    waited_on = CASE WHEN known.closed_on = '' THEN NULL ELSE known.waited_on END,
    waits = CASE WHEN known.closed_on = '' THEN NULL ELSE known.waits END,
    closed_on = nullif(known.closed_on, '')

-- name: raise_turns
-- Promise: all backlogs of the groups of these backlogs have at least the turn that these have: the tasks of a group that
-- wait for a limit save no turns up while other tasks of the group begin to wait. Parameters: names. Rows: none.
UPDATE dibs_backlogs SET turn = raised.turn
FROM (SELECT queue, group_key, max(turn) AS turn FROM dibs_backlogs
      WHERE name IN (SELECT value FROM json_each(:names)) GROUP BY queue, group_key) AS raised
WHERE dibs_backlogs.queue = raised.queue AND dibs_backlogs.group_key = raised.group_key
  AND dibs_backlogs.turn < raised.turn

-- name: return_permits
-- Promise: the counters have so many users less. Parameters: items (a JSON array of objects with name, count). Rows:
-- none. Safe: see `ended_claims`.
UPDATE dibs_counters SET used = used - (item ->> 'count')
FROM (SELECT value AS item FROM json_each(:items)) WHERE name = item ->> 'name'

-- name: next_pair
-- Promise: the first queue and type after this one that have a backlog on this counter, or an open one. Parameters:
-- closed_on, queue, type. Words: which. Rows: (queue, type), or none. Index: two probes; a comparison of both columns at
-- once would read all backlogs of the queue.
SELECT queue, type FROM (
    SELECT * FROM (SELECT queue, type FROM dibs_backlogs
                   WHERE {{which}} AND queue = :queue AND type > :type ORDER BY type LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT queue, type FROM dibs_backlogs WHERE {{which}} AND queue > :queue ORDER BY queue, type LIMIT 1))
ORDER BY queue, type LIMIT 1

-- name: open_backlogs
-- Promise: the first open backlogs of this queue and type, unless its queue is paused. Parameters: queue, type, queues,
-- types. Words: limit, in_queues, in_types, unlimited. Rows: backlog columns. Index: dibs_backlogs_open.
SELECT {{backlog}} FROM dibs_backlogs AS backlog INDEXED BY dibs_backlogs_open
WHERE closed_on IS NULL AND backlog.queue = :queue AND backlog.type = :type AND {{open_pair: backlog}} {{unlimited}}
ORDER BY priority DESC, turn, head LIMIT {{limit}}

-- name: open_watchers
-- Promise: the first backlogs of this queue and type that wait for the counter are open, as many as it has room.
-- Parameters: closed_on, queue, type, room. Rows: (name). Index: dibs_backlogs_closed.
UPDATE dibs_backlogs SET closed_on = NULL
WHERE name IN (SELECT name FROM dibs_backlogs INDEXED BY dibs_backlogs_closed
               WHERE closed_on = :closed_on AND closed_on > '' AND queue = :queue AND type = :type
               ORDER BY priority DESC, turn, head LIMIT :room)
RETURNING name

-- name: watchers
-- Promise: the first backlogs of this queue and type that wait for the counter, unless the queue or type is paused.
-- Parameters: closed_on, queue, type, queues, types. Words: limit, in_queues, in_types, unlimited. Rows: backlog columns.
-- Index: dibs_backlogs_closed.
SELECT {{backlog}} FROM dibs_backlogs AS backlog INDEXED BY dibs_backlogs_closed
WHERE closed_on = :closed_on AND closed_on > '' AND backlog.queue = :queue AND backlog.type = :type
  AND {{open_pair: backlog}} {{unlimited}}
ORDER BY priority DESC, turn, head LIMIT {{limit}}

-- name: read_backlogs
-- Promise: the first tasks of these backlogs. Parameters: names, count, min_attempts_left, now. Words: order, index. Rows:
-- (backlog, id, priority).
SELECT wanted.value, task.id, task.priority
FROM json_each(:names) AS wanted CROSS JOIN dibs_tasks AS task
WHERE task.id IN (
    SELECT id FROM dibs_tasks INDEXED BY {{index}}
    WHERE state = 'pending' AND backlog IS NOT NULL AND backlog = wanted.value
      AND attempts_left >= :min_attempts_left AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY {{order}} LIMIT :count)

-- name: claim_limited
-- Promise: these tasks now belong to the given workers, each under its next token, and are counted by the given counters.
-- Parameters: items (a JSON array of objects with id, permits, worker_id, incarnation), waits (a JSON object: of the ids
-- of tasks whose backlog has waited for limits, the waits of the backlog), lease, ahead, request, now. Rows: history columns,
-- task columns; none for a task that is not pending any more. The detail says how long the task waited for which limits.
-- Safe: the lock of the file is held since before the counters were read. A task whose last claim is still counted
-- (`permits`) is left out.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = items.worker_id, incarnation = items.incarnation,
    claimed_at = :now, lease_until = :now + :lease, ahead = :ahead, request = :request, progress = NULL,
    progress_message = NULL, parked = 0, permits = items.permits
FROM (SELECT value ->> 'id' AS item_id, value ->> 'worker_id' AS worker_id, value ->> 'incarnation' AS incarnation,
             value ->> 'permits' AS permits
      FROM json_each(:items)) AS items
WHERE id = items.item_id AND +state = 'pending' AND backlog IS NOT NULL AND dibs_tasks.permits IS NULL
RETURNING id, 'claimed', 'pending', state, worker_id, token, {{waited}}, {{task}}

-- fragment: waited
-- How long the task waited for limits, as JSON: the last limit, all seconds, and those of each limit if there are several;
-- NULL if the task has begun to wait after the last wait of its backlog. A wait lasts until the next one begins.
CASE WHEN :waits -> ('$."' || id || '"') IS NOT NULL THEN
    (SELECT CASE count(*) WHEN 0 THEN NULL
                 WHEN 1 THEN json_object('limit', max(name), 'waited', sum(micros) / 1e6)
                 ELSE json_object('limit', max(name) FILTER (WHERE last = newest), 'waited', sum(micros) / 1e6,
                                  'waits', json(json_group_object(name, micros / 1e6))) END
     FROM (SELECT name, sum(max(until - max(since, ready_at), 0)) AS micros, max(nth) AS last,
                  max(max(nth)) OVER () AS newest
           FROM (SELECT key AS nth, value ->> 0 AS name, value ->> 1 AS since,
                        coalesce(lead(value ->> 1) OVER (ORDER BY key), :now) AS until,
                        lead(key) OVER (ORDER BY key) IS NULL AS lasts
                 FROM json_each(:waits, '$."' || dibs_tasks.id || '"')) AS waits
           WHERE name IS NOT NULL AND (lasts OR until > max(since, ready_at))
           GROUP BY name ORDER BY last) AS limits) END

-- name: close_backlogs
-- Promise: the backlogs have these first tasks, and are closed on this counter (NULL: open; empty: without tasks).
-- Parameters: items (a JSON array of objects with name, closed_on, priority, head, waits, begins, wait_for), now. Rows:
-- none.
UPDATE dibs_backlogs
SET priority = item ->> 'priority', head = item ->> 'head', closed_on = item ->> 'closed_on',
    waited_since = CASE WHEN item ->> 'closed_on' IS waited_on THEN waited_since ELSE :now END,
    waited_on = nullif(item ->> 'closed_on', ''),
    waits = CASE WHEN item ->> 'begins'
        THEN json_insert(item ->> 'waits', '$[#]', json_array(item ->> 'wait_for', :now)) ELSE item ->> 'waits' END
FROM (SELECT value AS item FROM json_each(:items)) WHERE name = item ->> 'name'

-- name: use_counters
-- Promise: the counters have so many users more, and the rates their new times. Parameters: items (a JSON array of objects
-- with name, limit_name, group_key, taken, allowed_at, opens_at), now. Rows: none.
INSERT INTO dibs_counters AS known (name, limit_name, group_key, used, allowed_at, opens_at, noted_at)
SELECT value ->> 'name', value ->> 'limit_name', value ->> 'group_key', value ->> 'taken', value ->> 'allowed_at',
    value ->> 'opens_at', :now
FROM json_each(:items) WHERE true
ON CONFLICT (name) DO UPDATE SET used = known.used + excluded.used, allowed_at = excluded.allowed_at,
    opens_at = excluded.opens_at, noted_at = excluded.noted_at

-- name: advance_groups
-- Promise: the groups have these turns. Parameters: items (a JSON array of objects with queue, group_key, turn). Rows:
-- none.
INSERT INTO dibs_groups AS known (queue, group_key, turn)
SELECT value ->> 'queue', value ->> 'group_key', value ->> 'turn' FROM json_each(:items) WHERE true
ON CONFLICT (queue, group_key) DO UPDATE SET turn = excluded.turn

-- name: advance_backlogs
-- Promise: all backlogs of the groups have these turns. Parameters as in `advance_groups`. Rows: none.
UPDATE dibs_backlogs SET turn = item ->> 'turn'
FROM (SELECT value AS item FROM json_each(:items))
WHERE queue = item ->> 'queue' AND group_key = item ->> 'group_key'

-- name: advance_queues
-- Promise: the fair queues have reached these turns. Parameters: items (a JSON array of objects with name, turn). Rows:
-- none.
UPDATE dibs_flow_settings SET turn = max(turn, item ->> 'turn')
FROM (SELECT value AS item FROM json_each(:items)) WHERE scope = 'queue' AND name = item ->> 'name'

-- name: adapt_backlogs
-- Promise: the backlogs have these limits, and are open unless they are empty; in a fair queue they have at least the turn
-- of the queue. Parameters: items (a JSON array of objects with name, limit_names, counters, fair). Rows: none.
UPDATE dibs_backlogs
SET limit_names = item ->> 'limit_names', counters = item ->> 'counters',
    closed_on = CASE WHEN closed_on = '' THEN '' END,
    turn = CASE WHEN item ->> 'fair' THEN max(
        turn,
        coalesce((SELECT served.turn FROM dibs_groups AS served
                  WHERE served.queue = dibs_backlogs.queue AND served.group_key = dibs_backlogs.group_key), 0),
        coalesce((SELECT setting.turn FROM dibs_flow_settings AS setting
                  WHERE setting.scope = 'queue' AND setting.name = dibs_backlogs.queue), 0)
    ) ELSE 0 END
FROM (SELECT value AS item FROM json_each(:items)) WHERE name = item ->> 'name'

-- name: settle_tasks
-- Promise: these tasks wait in these backlogs from now on, as soon as they are pending. Parameters: items (a JSON array
-- of objects with id, backlog, group_key). Rows: (id). Index: the primary key.
UPDATE dibs_tasks SET backlog = item ->> 'backlog', group_key = item ->> 'group_key', parked = 0
FROM (SELECT value AS item FROM json_each(:items))
WHERE id = item ->> 'id' AND dibs_tasks.backlog IS NULL
RETURNING id
