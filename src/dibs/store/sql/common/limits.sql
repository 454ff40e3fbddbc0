-- Limits, settings of queues and types, and groups.
-- Locks: the row of dibs_flow last of all, after the roots of workflow trees and after tasks. The transaction that holds
-- this row reads and writes dibs_counters, dibs_backlogs, dibs_groups and dibs_signals, and waits for no other lock:
-- a statement that takes tasks skips the locked ones. SQLite locks the file for each transaction that writes.

-- name: begin_flow
-- Promise: the row exists that `lock_flow` locks. Rows: none.
INSERT INTO dibs_flow (id, version) VALUES (1, 1) ON CONFLICT (id) DO NOTHING

-- name: lock_flow
-- Promise: until the transaction ends, no other one claims tasks with limits, or changes a limit or setting.
-- Rows: (version); none if the row does not exist yet (`begin_flow`).
-- Safe: of two transactions, the second waits here for the end of the first, and then reads what the first has written,
-- because each statement has a snapshot of its own. No transaction takes another lock that it would have to wait for
-- after this one, so no deadlock is possible.
SELECT version FROM dibs_flow WHERE id = 1 {{lock_rows}}

-- name: set_flow_version
-- Promise: every process reads the limits and settings again before its next enqueue. Parameters: version. Rows: none.
-- Safe: the caller has locked the row (`lock_flow`), in the transaction that changes the limits or settings.
UPDATE dibs_flow SET version = :version WHERE id = 1

-- fragment: limit_columns
-- The columns of a limit, in the order in which Python reads them.
name, max, starts, period, burst, per, source, created_at, updated_at, declared

-- name: put_limit
-- Promise: the limit is stored as given, or changed to it; an equal limit changes nothing (no row then). A removed limit
-- is set again. Parameters: the limit's values, declared (NULL: unchanged), now. Rows: limit columns.
-- Safe: the caller holds the lock of dibs_flow.
{{with_moment}}
INSERT INTO dibs_limits AS known (
    name, max, starts, period, burst, per, source, created_at, updated_at, declared
) VALUES (:name, :max, :starts, :period, :burst, :per, :source, {{now}}, {{now}}, :declared)
ON CONFLICT (name) DO UPDATE SET
    max = excluded.max, starts = excluded.starts, period = excluded.period, burst = excluded.burst, per = excluded.per,
    source = excluded.source, updated_at = excluded.updated_at, declared = coalesce(excluded.declared, known.declared),
    removed_at = NULL
WHERE known.removed_at IS NOT NULL
   OR (known.max, known.starts, known.period, known.burst, known.per, known.source, known.declared)
       {{differs_from}} (excluded.max, excluded.starts, excluded.period, excluded.burst, excluded.per, excluded.source,
                         coalesce(excluded.declared, known.declared))
RETURNING {{limit_columns}}

-- name: note_limit_declared
-- Promise: what a program declares about this limit is stored; the limit, which was set by hand, stays as it is.
-- Parameters: name, declared. Rows: none.
UPDATE dibs_limits SET declared = :declared WHERE name = :name

-- name: removed_limit
-- Promise: what a program declared about this limit, which was removed by hand. Parameters: name. Rows: (declared or
-- NULL); none for a limit that is in force, or never existed.
SELECT declared FROM dibs_limits WHERE name = :name AND removed_at IS NOT NULL

-- name: removed_limits
-- Promise: the limits that were removed and are not set again. Rows: (name).
SELECT name FROM dibs_limits WHERE removed_at IS NOT NULL

-- name: declarations
-- Promise: what programs have declared. Rows: ('limit', 'queue' or 'type', name, declared or NULL, removed).
SELECT 'limit', name, declared, removed_at IS NOT NULL FROM dibs_limits
UNION ALL
SELECT scope, name, declared, false FROM dibs_flow_settings

-- name: get_limit
-- Promise: the limit of this name, unless it was removed. Parameters: name. Rows: limit columns, and the number of live
-- claims that count towards it.
SELECT {{limit_columns}}, {{used_of_limit}} FROM dibs_limits WHERE name = :name AND removed_at IS NULL

-- name: list_limits
-- Promise: all limits, by name. Rows as in `get_limit`.
SELECT {{limit_columns}}, {{used_of_limit}} FROM dibs_limits WHERE removed_at IS NULL ORDER BY name

-- fragment: used_of_limit
-- The live claims that count towards a limit: the counters of all its groups, without the tasks whose claim has ended
-- and that no claim has subtracted yet. Index: dibs_counters_limit.
(SELECT coalesce(sum(used), 0) FROM dibs_counters WHERE limit_name = dibs_limits.name)

-- fragment: waiting_backlogs
-- How many tasks wait in each backlog, and the id of one of them: registered or not, so that the figures are true before
-- a claim as well. Rows `waiting (backlog, tasks, first)`. Index: one pass over dibs_tasks_backlog, of all waiting tasks
-- with limits or of fair queues.
(SELECT backlog, count(*) AS tasks, min(id) AS first FROM dibs_tasks {{indexed_by: dibs_tasks_backlog}}
 WHERE state = 'pending' AND backlog IS NOT NULL GROUP BY backlog) AS waiting

-- fragment: has_limit
-- A condition: the limit applies to the task. Parameters: name, queues, types (those that carry the limit).
(task.queue {{in_text: queues}} OR task.type {{in_text: types}}
 OR (task.limits IS NOT NULL AND EXISTS (SELECT 1 FROM {{text_items: task.limits}} WHERE item.value = :name)))

-- name: waiting_tasks
-- Promise: how many pending tasks with limits or of fair queues wait. Rows: (queue, type, JSON array of the limits that
-- the tasks name, tasks).
SELECT task.queue, task.type, task.limits, sum(waiting.tasks)
FROM {{waiting_backlogs}} JOIN dibs_tasks AS task ON task.id = waiting.first
GROUP BY task.queue, task.type, task.limits

-- name: exhausted_limits
-- Promise: since when backlogs have waited for the counters of which limits, the earliest of each limit. Rows: (limit,
-- time). Index: dibs_backlogs_closed.
SELECT counter.limit_name, min(backlog.waited_since)
FROM dibs_backlogs AS backlog JOIN dibs_counters AS counter ON counter.name = backlog.closed_on
WHERE backlog.closed_on > '' GROUP BY counter.limit_name

-- name: claims_behind
-- Promise: how many claims a group of a fair queue has had less than its share, while it had tasks that no limit and no
-- pause stops: of each queue the group that is furthest behind. Rows: (queue, claims), only queues in which a group is
-- behind. Indexes: dibs_backlogs_open, dibs_tasks_backlog.
SELECT setting.name, max((setting.turn - backlog.turn) * coalesce(known.weight, 1))
FROM dibs_flow_settings AS setting
JOIN dibs_backlogs AS backlog ON backlog.queue = setting.name
LEFT JOIN dibs_groups AS known ON known.queue = backlog.queue AND known.group_key = backlog.group_key
WHERE setting.scope = 'queue' AND setting.fair AND backlog.closed_on IS NULL AND backlog.turn < setting.turn
  AND {{is_not_paused: backlog}}
  AND EXISTS (SELECT 1 FROM dibs_tasks AS task
              WHERE task.state = 'pending' AND task.backlog IS NOT NULL AND task.backlog = backlog.name)
GROUP BY setting.name

-- name: returning_permits
-- Promise: the tasks that have ended a claim and are still counted in `used`. Rows: (JSON array of counters, tasks).
-- Index: dibs_tasks_returning.
SELECT permits, count(*) FROM dibs_tasks {{indexed_by: dibs_tasks_returning}}
WHERE permits IS NOT NULL AND state <> 'claimed' GROUP BY permits

-- name: waiting_signals
-- Promise: up to `limit` signals, the first ones first; they stay. Words: limit. Rows as in `take_signals`.
SELECT backlog, queue, type, group_key, limits, priority, head FROM dibs_signals ORDER BY id LIMIT {{limit}}

-- name: unregistered_tasks
-- Promise: up to `limit` tasks that wait and are not registered, the first ones first; they stay so. Words: limit. Rows
-- as in `register_tasks`. Index: dibs_tasks_unregistered.
SELECT backlog, queue, type, group_key, limits, priority, id
FROM dibs_tasks {{indexed_by: dibs_tasks_unregistered}} WHERE {{unregistered}} ORDER BY id LIMIT {{limit}}

-- name: backlogs_named
-- Promise: those of these backlogs that exist. Parameters: names. Rows: backlog columns, closed_on.
SELECT {{backlog}}, backlog.closed_on FROM dibs_backlogs AS backlog WHERE backlog.name {{in_text: names}}

-- name: turns_of_groups
-- Promise: the turns and weights of these groups, as far as they have any. Parameters: queues, names. Rows: (queue, group,
-- turn, weight). Index: the primary key.
SELECT queue, group_key, turn, weight FROM dibs_groups WHERE queue {{in_text: queues}} AND group_key {{in_text: names}}

-- name: turns_of_queues
-- Promise: the turns that these queues have reached. Parameters: queues. Rows: (queue, turn).
SELECT name, turn FROM dibs_flow_settings WHERE scope = 'queue' AND name {{in_text: queues}}

-- name: paused_among
-- Promise: which of these queues and types are paused. Parameters: queues, types. Rows: (scope, name).
SELECT scope, name FROM dibs_pauses
WHERE paused_at IS NOT NULL
  AND ((scope = 'queue' AND name {{in_text: queues}}) OR (scope = 'type' AND name {{in_text: types}}))

-- name: remove_limit
-- Promise: the limit is removed: the tasks that name it run without it. Its declaration stays, so that a program that
-- declares the same again does not set it. Parameters: name, now. Rows: (name), none if there was none.
-- Safe: the caller holds the lock of dibs_flow. The counters stay: a claim that is live now is counted if the limit is
-- set again.
{{with_moment}}
UPDATE dibs_limits SET removed_at = {{now}}, source = 'command' WHERE name = :name AND removed_at IS NULL RETURNING name

-- name: limit_groups
-- Promise: the groups of a limit that hold claims or have tasks waiting, in order. Parameters: name, queues, types (those
-- that carry the limit), per_group (false: one group, without a name), after (the group after which the list begins, NULL
-- for the first). Words: limit. Rows: (group, used, waiting, opens_at).
-- Indexes: dibs_counters_limit, dibs_tasks_returning, dibs_tasks_backlog.
SELECT group_key, sum(used), sum(tasks), max(opens_at)
FROM (
    SELECT group_key, used, 0 AS tasks, opens_at FROM dibs_counters WHERE limit_name = :name
    UNION ALL
    SELECT counter.group_key, -1, 0, NULL
    FROM (SELECT permits FROM dibs_tasks {{indexed_by: dibs_tasks_returning}}
          WHERE permits IS NOT NULL AND state <> 'claimed') AS ended
    CROSS JOIN {{text_items: ended.permits}}
    JOIN dibs_counters AS counter ON counter.name = item.value AND counter.limit_name = :name
    UNION ALL
    SELECT CASE WHEN :per_group THEN coalesce(task.group_key, '') ELSE '' END, 0, waiting.tasks, NULL
    FROM {{waiting_backlogs}} JOIN dibs_tasks AS task ON task.id = waiting.first
    WHERE {{has_limit}}
) AS found
WHERE CAST(:after AS text) IS NULL OR group_key > :after
GROUP BY group_key HAVING sum(used) > 0 OR sum(tasks) > 0
ORDER BY group_key LIMIT {{limit}}

-- fragment: flow_setting
-- The columns of the settings of a queue or type, in the order in which Python reads them.
name, limits, fair, group_by, source, created_at, updated_at, declared

-- name: put_flow_setting
-- Promise: the settings of the queue or type are stored as given, or changed to it; equal settings change nothing (no
-- row then). Parameters: scope, name, limits, fair, group_by (each NULL: unchanged), source, declared (NULL: unchanged),
-- now. Rows: setting columns. Safe: the caller holds the lock of dibs_flow.
{{with_moment}}
INSERT INTO dibs_flow_settings AS known (
    scope, name, limits, fair, group_by, source, created_at, updated_at, declared
) VALUES (
    :scope, :name, coalesce(CAST(:limits AS text), '[]'), coalesce(CAST(:fair AS boolean), false),
    nullif(CAST(:group_by AS text), ''), :source, {{now}}, {{now}}, :declared
)
ON CONFLICT (scope, name) DO UPDATE SET
    limits = coalesce(CAST(:limits AS text), known.limits), fair = coalesce(CAST(:fair AS boolean), known.fair),
    group_by = nullif(coalesce(CAST(:group_by AS text), known.group_by), ''), source = excluded.source,
    updated_at = excluded.updated_at, declared = coalesce(excluded.declared, known.declared)
WHERE (known.limits, known.fair, known.group_by, known.source, known.declared)
    {{differs_from}}
      (coalesce(CAST(:limits AS text), known.limits), coalesce(CAST(:fair AS boolean), known.fair),
       nullif(coalesce(CAST(:group_by AS text), known.group_by), ''), excluded.source,
       coalesce(excluded.declared, known.declared))
RETURNING {{flow_setting}}

-- name: note_setting_declared
-- Promise: what a program declares about this queue or type is stored; the settings, which were made by hand, stay as
-- they are. Parameters: scope, name, declared. Rows: none.
UPDATE dibs_flow_settings SET declared = :declared WHERE scope = :scope AND name = :name

-- name: get_flow_setting
-- Promise: the settings of this queue or type. Parameters: scope, name. Rows: setting columns; none if it has none.
SELECT {{flow_setting}} FROM dibs_flow_settings WHERE scope = :scope AND name = :name

-- name: flow_settings
-- Promise: the settings of all queues or types, by name. Parameters: scope. Rows: setting columns.
SELECT {{flow_setting}} FROM dibs_flow_settings WHERE scope = :scope ORDER BY name

-- name: put_group
-- Promise: the group of the queue has this weight. Parameters: queue, group, weight. Rows: (weight).
-- Safe: the caller holds the lock of dibs_flow.
INSERT INTO dibs_groups (queue, group_key, weight) VALUES (:queue, :group, :weight)
ON CONFLICT (queue, group_key) DO UPDATE SET weight = excluded.weight
RETURNING weight

-- name: list_groups
-- Promise: the groups of the queue that have a weight or tasks that wait, in order. Parameters: queue, after (NULL for the
-- first), only (the one group to return, or NULL). Words: limit. Rows: (group, weight, waiting tasks).
-- Indexes: the primary key of dibs_groups, dibs_tasks_backlog.
SELECT group_key, coalesce(max(weight), 1), sum(tasks)
FROM (
    SELECT group_key, weight, 0 AS tasks FROM dibs_groups WHERE queue = :queue
    UNION ALL
    SELECT coalesce(task.group_key, ''), NULL, waiting.tasks
    FROM {{waiting_backlogs}} JOIN dibs_tasks AS task ON task.id = waiting.first
    WHERE task.queue = :queue
) AS found
WHERE (CAST(:after AS text) IS NULL OR group_key > :after) AND (CAST(:only AS text) IS NULL OR group_key = :only)
GROUP BY group_key ORDER BY group_key LIMIT {{limit}}

-- name: flow_version
-- Promise: the version of the limits and settings. Rows: (version), none for version 0.
SELECT version FROM dibs_flow WHERE id = 1

-- name: every_limit
-- Promise: all limits, removed ones included. Rows: (name, max, starts, period, burst, per, removed, declared).
SELECT name, max, starts, period, burst, per, removed_at IS NOT NULL, declared IS NOT NULL FROM dibs_limits

-- name: every_setting
-- Promise: the settings of all queues and types. Rows: (scope, name, limits, fair, group_by).
SELECT scope, name, limits, fair, group_by FROM dibs_flow_settings

-- name: ended_claims
-- Promise: up to `limit` tasks that are counted and whose claim has ended, locked. Words: limit. Rows: (id, JSON array
-- of counters). Index: dibs_tasks_returning.
-- Safe: whatever ends a claim changes the state and leaves `permits`; `clear_permits` and `return_permits` follow in the
-- same transaction. Only the holder of the lock of dibs_flow writes `permits`, so each is subtracted once. A task that
-- another transaction has locked is skipped, and found by the next claim.
SELECT id, permits FROM dibs_tasks {{indexed_by: dibs_tasks_returning}}
WHERE permits IS NOT NULL AND state <> 'claimed' ORDER BY id LIMIT {{limit}} {{skip_locked}}

-- name: clear_permits
-- Promise: these tasks, whose claims have ended, are counted no more. Parameters: ids. Rows: none.
-- Safe: see `ended_claims`.
UPDATE dibs_tasks SET permits = NULL WHERE id {{in: ids}} AND {{unindexed: state}} <> 'claimed'

-- name: due_counters
-- Promise: up to `limit` counters whose rate allows a start again, or whose limit was changed. Words: limit. Parameters:
-- now. Rows: (name). Indexes: dibs_counters_opening, dibs_counters_noted. If the clock was set back, the counters whose
-- times were found by the later clock are due as well: their times mean nothing any more.
{{with_moment}}
SELECT name FROM dibs_counters WHERE opens_at IS NOT NULL AND opens_at <= {{now}}
UNION
SELECT name FROM dibs_counters WHERE opens_at IS NOT NULL AND noted_at > {{now}} + {{clock_slack}}
LIMIT {{limit}}

-- fragment: clock_slack
-- Microseconds by which the clock may seem to go back without having been set back (see `CLOCK_SLACK`).
5000000

-- name: reopen_counters
-- Promise: the next claim opens the backlogs that wait for the counters of this limit, as far as there is room.
-- Parameters: name. Rows: none. Safe: the caller holds the lock of dibs_flow.
UPDATE dibs_counters SET opens_at = 0 WHERE limit_name = :name

-- name: read_counters
-- Promise: the use of these counters, and whether backlogs wait for them. Parameters: names. Rows: (name, used,
-- allowed_at, watched or NULL); none for a counter that was never used, for which nothing waits.
-- Index: dibs_backlogs_closed, one probe for each: the order keeps the planner from reading all backlogs. Safe: the caller holds the lock of dibs_flow.
SELECT name, used, allowed_at,
    (SELECT true FROM dibs_backlogs WHERE closed_on = counter.name AND closed_on > '' ORDER BY queue, type LIMIT 1)
FROM dibs_counters AS counter WHERE name {{in_text: names}}

-- name: open_these
-- Promise: these backlogs are open. Parameters: names. Rows: none. Index: the primary key.
-- Safe: the caller holds the lock of dibs_flow.
UPDATE dibs_backlogs SET closed_on = NULL WHERE name {{in_text: names}}

-- name: priorities_of
-- Promise: the priorities of these tasks. Parameters: ids. Rows: (id, priority).
SELECT id, priority FROM dibs_tasks WHERE id {{in: ids}}

-- fragment: backlog
-- The columns of a backlog, in the order in which Python reads them. The alias of the table is `backlog`.
backlog.name, backlog.queue, backlog.type, backlog.group_key, backlog.limits, backlog.priority, backlog.head,
backlog.turn, coalesce((SELECT weight FROM dibs_groups AS known
                        WHERE known.queue = backlog.queue AND known.group_key = backlog.group_key), 1),
backlog.waited_on, backlog.waits

-- fragment: open_pair
-- A condition: the claim may take tasks of this queue and type. Words: in_queues, in_types.
{{is_not_paused: {{argument}}}} {{in_queues}} {{in_types}}

-- name: limits_disagreeing
-- Promise: how many counters differ from the number of tasks whose permits name them. Rows: (count).
SELECT count(*) FROM (
    SELECT name FROM dibs_counters AS counter WHERE used <> coalesce((
        SELECT tasks FROM (
            SELECT item.value AS name, count(*) AS tasks FROM dibs_tasks, {{text_items: permits}}
            WHERE permits IS NOT NULL GROUP BY item.value) AS counted
        WHERE counted.name = counter.name), 0)
) AS disagreeing

-- name: scope_in_use
-- Promise: `per` of this limit, if claims or backlogs have its counters. Parameters: name. Rows: (per), or none.
SELECT per FROM dibs_limits AS known WHERE name = :name
  AND (EXISTS (SELECT 1 FROM dibs_counters WHERE limit_name = known.name AND used > 0)
       OR EXISTS (SELECT 1 FROM dibs_backlogs WHERE EXISTS (SELECT 1 FROM {{text_items: limit_names}} WHERE value = :name)))

-- name: backlogs_of
-- Promise: the backlogs of this queue or type. Parameters: scope, name. Rows: (name, queue, type, group, limits).
SELECT name, queue, type, group_key, limits FROM dibs_backlogs
WHERE CASE WHEN :scope = 'queue' THEN queue ELSE type END = :name

-- name: count_change
-- Promise: the settings of a queue or type have changed once more. Rows: none. Safe: the caller holds the lock of
-- dibs_flow.
UPDATE dibs_flow SET changes = changes + 1 WHERE id = 1

-- name: changes
-- Promise: how often settings were changed, and after how many of these changes all tasks that wait were settled.
-- Rows: (changes, settled); none if the store never had a limit or setting.
SELECT changes, settled FROM dibs_flow WHERE id = 1

-- name: note_settled
-- Promise: all tasks that wait obey the settings as they were after this many changes. Parameters: changes. Rows: none.
-- Safe: the caller has read the number before it began to walk through the tasks; a later change has a higher number.
UPDATE dibs_flow SET settled = :changes WHERE id = 1 AND settled < :changes

-- name: settle_span
-- Promise: the last of the next `limit` tasks after this id, and how many there are. Parameters: after. Words: limit.
-- Rows: (id or NULL, count). Index: the primary key.
SELECT max(id), count(*)
FROM (SELECT id FROM dibs_tasks {{not_indexed}} WHERE id > :after ORDER BY id LIMIT {{limit}}) AS task

-- name: unsettled_tasks
-- Promise: the plain tasks in this range of ids that may run in future, locked. Also claimed, failed and cancelled ones:
-- they may be pending again. Parameters: after, until. Rows: (id, queue, type, params, limits, group).
-- Safe: in the order of the ids, as in every statement that locks tasks.
SELECT id, queue, type, params, limits, group_key FROM dibs_tasks {{not_indexed}}
WHERE id > :after AND id <= :until AND backlog IS NULL AND {{unindexed: state}} <> 'completed'
  AND (queue IN (SELECT name FROM dibs_flow_settings WHERE scope = 'queue')
       OR type IN (SELECT name FROM dibs_flow_settings WHERE scope = 'type'))
ORDER BY id {{lock_rows}}

-- name: lock_limited
-- Promise: this task of a backlog is pending, and neither its queue nor its type is paused, until the transaction ends.
-- Parameters: id, now. Rows: backlog columns, or none.
-- Safe: the task is locked before the row of dibs_flow, in the order of every transaction.
{{with_moment}}
SELECT backlog, queue, type, coalesce(group_key, ''), limits, priority, id, 0, 1, NULL, NULL FROM dibs_tasks
WHERE id = :id AND {{unindexed: state}} = 'pending' AND backlog IS NOT NULL
  AND coalesce(expires_at > {{now}}, true)
  AND {{is_not_paused: dibs_tasks}}
{{lock_rows}}

-- name: has_backlog
-- Promise: whether limits or a fair queue apply to this task. Parameters: id. Rows: (1), or none.
SELECT 1 FROM dibs_tasks WHERE id = :id AND backlog IS NOT NULL

-- name: tasks_before
-- Promise: how many waiting tasks with this limit come before this one by priority and age, without those whose queue or
-- type is paused. Parameters: id, priority, name, queues, types (as in `has_limit`), group (only tasks of this group; NULL
-- for all). Rows: (count). Index: a pass over dibs_tasks_backlog.
SELECT coalesce(sum(waiting.tasks), 0)
FROM (SELECT backlog, count(*) AS tasks, min(id) AS first FROM dibs_tasks {{indexed_by: dibs_tasks_backlog}}
      WHERE state = 'pending' AND backlog IS NOT NULL
        AND (priority > :priority OR (priority = :priority AND id < :id))
      GROUP BY backlog) AS waiting
JOIN dibs_tasks AS task ON task.id = waiting.first
WHERE (CAST(:group AS text) IS NULL OR coalesce(task.group_key, '') = :group)
  AND {{has_limit}} AND {{is_not_paused: task}}

-- name: groups_before
-- Promise: the groups of a fair queue that have tasks of this priority or a higher one, types that are paused left out.
-- Parameters: queue, id, priority, group (that of the task: only its tasks before the id count). Rows: (group, weight,
-- turn, tasks with a higher priority, tasks with this priority). Index: a pass over dibs_tasks_backlog.
SELECT coalesce(task.group_key, '') AS name, coalesce(max(served.weight), 1),
    min(coalesce(known.turn, CASE WHEN served.turn > setting.turn THEN served.turn ELSE setting.turn END)),
    sum(waiting.higher),
    sum(CASE WHEN coalesce(task.group_key, '') = :group THEN waiting.older ELSE waiting.equal END)
FROM (SELECT backlog, min(id) AS first,
             sum(CASE WHEN priority > :priority THEN 1 ELSE 0 END) AS higher,
             sum(CASE WHEN priority = :priority THEN 1 ELSE 0 END) AS equal,
             sum(CASE WHEN priority = :priority AND id < :id THEN 1 ELSE 0 END) AS older
      FROM dibs_tasks {{indexed_by: dibs_tasks_backlog}}
      WHERE state = 'pending' AND backlog IS NOT NULL AND priority >= :priority
      GROUP BY backlog) AS waiting
JOIN dibs_tasks AS task ON task.id = waiting.first AND task.queue = :queue
JOIN dibs_flow_settings AS setting ON setting.scope = 'queue' AND setting.name = :queue
LEFT JOIN dibs_backlogs AS known ON known.name = waiting.backlog AND (known.closed_on IS NULL OR known.closed_on <> '')
LEFT JOIN dibs_groups AS served ON served.queue = :queue AND served.group_key = coalesce(task.group_key, '')
WHERE {{is_not_paused: task}}
GROUP BY coalesce(task.group_key, '')

-- name: wake_counters
-- Promise: the next claim opens the backlogs that wait for these counters, as far as there is room. Parameters: names.
-- Rows: none. Safe: the caller holds the lock of dibs_flow.
UPDATE dibs_counters SET opens_at = 0 WHERE name {{in_text: names}}
