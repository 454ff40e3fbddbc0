-- Schedules: tasks that are enqueued by a cron expression.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- fragment: schedule
-- The columns of a schedule, in the order in which Python reads them.
name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
backoff_cap, source, next_at, created_at, updated_at, last_at, last_task_id, last_error, tags, declared

-- name: put_schedule
-- Promise: the schedule is stored as given, or changed to it; an equal schedule changes nothing (no row then).
-- A changed cron or time zone, and enabling, start again at the given next_at; other changes keep the next tick.
-- Parameters: the schedule's values (enabled NULL: unchanged, true for a new one), declared (NULL: unchanged), now. Rows:
-- schedule columns.
{{with_moment}}
INSERT INTO dibs_schedules AS known (
    name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
    backoff_cap, source, next_at, created_at, updated_at, tags, declared
) VALUES (
    :name, :cron, :timezone, :catch_up, coalesce(CAST(:enabled AS boolean), true), :type, :params, :queue, :priority,
    :max_attempts, :timeout, :backoff_base, :backoff_cap, :source, :next_at, {{now}}, {{now}}, :tags, :declared
)
ON CONFLICT (name) DO UPDATE SET
    cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
    enabled = coalesce(CAST(:enabled AS boolean), known.enabled), type = excluded.type, params = excluded.params,
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, backoff_base = excluded.backoff_base, backoff_cap = excluded.backoff_cap,
    source = excluded.source, tags = excluded.tags, updated_at = excluded.updated_at,
    declared = coalesce(excluded.declared, known.declared),
    next_at = CASE WHEN known.cron = excluded.cron AND known.timezone = excluded.timezone
                        AND known.enabled >= coalesce(CAST(:enabled AS boolean), false)
                   THEN known.next_at ELSE excluded.next_at END
WHERE (known.cron, known.timezone, known.catch_up, known.enabled, known.type, known.params, known.queue,
       known.priority, known.max_attempts, known.timeout, known.backoff_base, known.backoff_cap, known.source,
       known.tags, known.declared)
    {{differs_from}}
      (excluded.cron, excluded.timezone, excluded.catch_up, coalesce(CAST(:enabled AS boolean), known.enabled),
       excluded.type, excluded.params, excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout,
       excluded.backoff_base, excluded.backoff_cap, excluded.source, excluded.tags,
       coalesce(excluded.declared, known.declared))
RETURNING {{schedule}}

-- name: note_declared
-- Promise: what a program declares about this schedule is stored; the schedule, which was set by hand, stays as it is.
-- Parameters: name, declared. Rows: none.
UPDATE dibs_schedules SET declared = :declared WHERE name = :name

-- name: get_schedule
-- Promise: the schedule of this name, and the database's time even if there is none. Parameters: name, now.
-- Rows: one, (now, schedule columns); all but the time are NULL where there is no such schedule.
{{with_moment}}
SELECT {{now}}, {{schedule}} FROM (SELECT 1) AS always LEFT JOIN dibs_schedules ON name = :name

-- name: list_schedules
-- Promise: all schedules, by name. Rows: schedule columns.
SELECT {{schedule}} FROM dibs_schedules ORDER BY name

-- name: remove_schedule
-- Promise: the schedule is gone; the tasks that it enqueued stay.
-- Parameters: name. Rows: (name), none if there was none.
DELETE FROM dibs_schedules WHERE name = :name RETURNING name

-- name: enable_schedule
-- Promise: the disabled schedule ticks again, from next_at on.
-- Parameters: name, next_at, and the cron and time zone that next_at was computed from; now.
-- Rows: schedule columns; none if the schedule is enabled, does not exist, or has another cron by now.
{{with_moment}}
UPDATE dibs_schedules SET enabled = true, next_at = :next_at, updated_at = {{now}}
WHERE name = :name AND NOT enabled AND cron = :cron AND timezone = :timezone
RETURNING {{schedule}}

-- name: disable_schedule
-- Promise: the schedule does not tick until it is enabled. Parameters: name, now.
-- Rows: schedule columns; none if the schedule is disabled already or does not exist.
{{with_moment}}
UPDATE dibs_schedules SET enabled = false, updated_at = {{now}} WHERE name = :name AND enabled RETURNING {{schedule}}

-- name: due_schedules
-- Promise: the enabled schedules whose next tick is due, the longest due first. Parameters: now.
-- Rows: (now, schedule columns). Index: dibs_schedules_due. Safe: a read; `tick_schedule` decides which client
-- enqueues.
{{with_moment}}
SELECT {{now}}, {{schedule}} FROM dibs_schedules WHERE enabled AND next_at <= {{now}} ORDER BY next_at, name

-- name: tick_schedule
-- Promise: of all clients that saw this tick, one advances the schedule to the next tick, and may enqueue.
-- Parameters: name, due_at (the next_at that was read), next_at, and the cron and time zone that it was computed from.
-- Rows: schedule columns, as they are now; none for every other client.
-- Safe: a second update waits for the first, then finds another next_at; a task that is enqueued in the same
-- transaction is stored if and only if the schedule advanced.
UPDATE dibs_schedules SET next_at = :next_at
WHERE name = :name AND enabled AND next_at = :due_at AND cron = :cron AND timezone = :timezone
RETURNING {{schedule}}

-- name: record_tick
-- Promise: the schedule shows how its last tick went; after a refused tick, the last good one is shown too.
-- Parameters: name, last_at, last_task_id (NULL: unchanged), last_error. Rows: none.
UPDATE dibs_schedules
SET last_at = coalesce(:last_at, last_at), last_task_id = coalesce(:last_task_id, last_task_id),
    last_error = :last_error
WHERE name = :name AND (CAST(:last_at AS bigint) IS NOT NULL OR last_error {{differs_from}} :last_error)
