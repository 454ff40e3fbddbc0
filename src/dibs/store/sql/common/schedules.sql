-- Schedules: tasks that are enqueued by a cron expression, at an interval, or once.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- fragment: schedule
-- The columns of a schedule, in the order in which Python reads them.
name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
backoff_cap, source, next_at, created_at, updated_at, last_at, last_task_id, last_error, tags, declared, expires_in,
limits, group_key, every, at, jitter, start_at, end_at, overlap, due_at, skipped, last_skipped_at, {{unfinished_task}}

-- fragment: unfinished_task
-- A task of the schedule that has not ended; NULL if there is none, or if its tasks may overlap. Index: dibs_tasks_ticks,
-- whose condition is repeated here. The keys of a schedule's tasks are "schedule:", its name, ":" and 20 characters, so
-- the length excludes the schedules whose names begin with this name and a colon.
-- Only the queue of the schedule counts: a caller that is limited to another queue must not stop the ticks with a key of
-- this form. The columns of the task have other names here, so that `queue` and `name` are those of the schedule.
(CASE WHEN overlap <> 'allow' THEN (
    SELECT min(task.task_id + 0)
    FROM (SELECT id AS task_id, key AS task_key, queue AS task_queue FROM dibs_tasks
          WHERE key >= 'schedule:' AND key < 'schedule<' AND state NOT IN ('completed', 'failed', 'cancelled')) AS task
    WHERE task.task_key > 'schedule:' || name || ':' AND task.task_key < 'schedule:' || name || ':s'
      AND length(task.task_key) = length(name) + 30 AND task.task_queue = queue
) END)

-- fragment: waits
-- True for a schedule whose next tick waits for the end of a task.
(overlap = 'queue' AND {{unfinished_task}} IS NOT NULL)

-- fragment: timing
-- The columns from which the ticks are computed.
cron, timezone, every, at, jitter, start_at, end_at

-- fragment: next_time
-- In `put_schedule`: the new value of the column next_at or due_at.
CASE WHEN known.removed_at IS NOT NULL
       OR (known.cron, known.timezone, known.every, known.at, known.jitter, known.start_at, known.end_at) {{differs_from}}
          (excluded.cron, excluded.timezone, excluded.every, excluded.at, excluded.jitter, excluded.start_at,
           excluded.end_at) THEN excluded.{{argument}}
     WHEN coalesce(CAST(:enabled AS boolean), false) AND NOT known.enabled THEN CAST(:resumed_{{argument}} AS bigint)
     ELSE known.{{argument}} END

-- fragment: same_timing
-- True if the columns of `timing` still have the given values.
NOT (({{timing}}) {{differs_from}}
     (CAST(:cron AS text), CAST(:timezone AS text), CAST(:every AS bigint), CAST(:at AS bigint),
      CAST(:jitter AS bigint), CAST(:start_at AS bigint), CAST(:end_at AS bigint)))

-- name: put_schedule
-- Promise: the schedule is stored as given, or changed to it; an equal schedule changes nothing (no row then).
-- A changed timing starts again at the given next_at, enabling at resumed_next_at; other changes keep the next tick. A removed
-- schedule is set again, as a new one.
-- Parameters: the schedule's values (enabled NULL: unchanged, true for a new one), declared (NULL: unchanged), next_at and
-- due_at, resumed_next_at and resumed_due_at, now. Rows: schedule columns.
{{with_moment}}
INSERT INTO dibs_schedules AS known (
    name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
    backoff_cap, source, next_at, created_at, updated_at, tags, declared, expires_in, limits, group_key, every, at,
    jitter, start_at, end_at, overlap, due_at
) VALUES (
    :name, :cron, :timezone, :catch_up, coalesce(CAST(:enabled AS boolean), true), :type, :params, :queue, :priority,
    :max_attempts, :timeout, :backoff_base, :backoff_cap, :source, :next_at, {{now}}, {{now}}, :tags, :declared,
    :expires_in, :limits, :group_key, :every, :at, :jitter, :start_at, :end_at, :overlap, :due_at
)
ON CONFLICT (name) DO UPDATE SET
    cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
    enabled = coalesce(CAST(:enabled AS boolean), known.removed_at IS NOT NULL OR known.enabled), type = excluded.type,
    params = excluded.params, limits = excluded.limits, group_key = excluded.group_key, removed_at = NULL,
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, backoff_base = excluded.backoff_base, backoff_cap = excluded.backoff_cap,
    source = excluded.source, tags = excluded.tags, expires_in = excluded.expires_in, updated_at = excluded.updated_at,
    declared = coalesce(excluded.declared, known.declared),
    every = excluded.every, at = excluded.at, jitter = excluded.jitter, start_at = excluded.start_at,
    end_at = excluded.end_at, overlap = excluded.overlap,
    next_at = {{next_time: next_at}}, due_at = {{next_time: due_at}}
WHERE known.removed_at IS NOT NULL
   OR (known.cron, known.timezone, known.catch_up, known.enabled, known.type, known.params, known.queue,
       known.priority, known.max_attempts, known.timeout, known.backoff_base, known.backoff_cap, known.source,
       known.tags, known.declared, known.expires_in, known.limits, known.group_key, known.every, known.at,
       known.jitter, known.start_at, known.end_at, known.overlap)
    {{differs_from}}
      (excluded.cron, excluded.timezone, excluded.catch_up, coalesce(CAST(:enabled AS boolean), known.enabled),
       excluded.type, excluded.params, excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout,
       excluded.backoff_base, excluded.backoff_cap, excluded.source, excluded.tags,
       coalesce(excluded.declared, known.declared), excluded.expires_in, excluded.limits, excluded.group_key,
       excluded.every, excluded.at, excluded.jitter, excluded.start_at, excluded.end_at, excluded.overlap)
RETURNING {{schedule}}

-- name: note_declared
-- Promise: what a program declares about this schedule is stored; the schedule, which was set by hand, stays as it is.
-- Parameters: name, declared. Rows: none.
UPDATE dibs_schedules SET declared = :declared WHERE name = :name

-- name: get_schedule
-- Promise: the schedule of this name, and the database's time even if there is none. Parameters: name, now.
-- Rows: one, (now, schedule columns); all but the time are NULL where there is no such schedule.
{{with_moment}}
SELECT {{now}}, {{schedule}} FROM (SELECT 1) AS always LEFT JOIN dibs_schedules ON name = :name AND removed_at IS NULL

-- name: list_schedules
-- Promise: all schedules, by name. Rows: schedule columns.
SELECT {{schedule}} FROM dibs_schedules WHERE removed_at IS NULL ORDER BY name

-- name: remove_schedule
-- Promise: the schedule, which no code declares, is gone; the tasks that it enqueued stay.
-- Parameters: name. Rows: (name), none if there was none.
DELETE FROM dibs_schedules WHERE name = :name AND declared IS NULL RETURNING name

-- name: remove_declared_schedule
-- Promise: the schedule, which code declares, is removed: it neither ticks nor is listed. Its declaration stays.
-- Parameters: name, now. Rows: (name), none if there was none.
{{with_moment}}
UPDATE dibs_schedules SET enabled = false, removed_at = {{now}}, updated_at = {{now}}
WHERE name = :name AND declared IS NOT NULL AND removed_at IS NULL RETURNING name

-- name: removed_schedule
-- Promise: what a program declared about this schedule, which was removed by hand. Parameters: name. Rows: (declared);
-- none for a schedule that is in force, or never existed.
SELECT declared FROM dibs_schedules WHERE name = :name AND removed_at IS NOT NULL

-- name: enable_schedule
-- Promise: the disabled schedule ticks again, from next_at on.
-- Parameters: name, next_at, due_at, and the timing that they were computed from; now.
-- Rows: schedule columns; none if the schedule is enabled, does not exist, or has another timing by now.
{{with_moment}}
UPDATE dibs_schedules SET enabled = true, next_at = :next_at, due_at = :due_at, updated_at = {{now}}
WHERE name = :name AND NOT enabled AND removed_at IS NULL AND {{same_timing}}
RETURNING {{schedule}}

-- name: disable_schedule
-- Promise: the schedule does not tick until it is enabled. Parameters: name, now.
-- Rows: schedule columns; none if the schedule is disabled already or does not exist.
{{with_moment}}
UPDATE dibs_schedules SET enabled = false, updated_at = {{now}} WHERE name = :name AND enabled RETURNING {{schedule}}

-- name: due_schedules
-- Promise: the enabled schedules whose next tick is due, the longest due first, without those whose tick waits for the
-- end of a task. Parameters: now. Rows: (now, when the last task ended, schedule columns); the second only for the overlap
-- 'queue': from the task, or from the history after the task was pruned.
-- Index: dibs_schedules_due. Safe: a read; `tick_schedule` decides which client enqueues.
{{with_moment}}
SELECT {{now}},
       CASE WHEN overlap = 'queue' THEN coalesce(
           (SELECT finished_at FROM dibs_tasks WHERE id = last_task_id),
           (SELECT max(past.at) FROM dibs_history AS past WHERE past.task_id = last_task_id)) END,
       {{schedule}}
FROM dibs_schedules WHERE enabled AND due_at <= {{now}} AND NOT {{waits}} ORDER BY due_at, name

-- name: tick_schedule
-- Promise: of all clients that saw this tick, one advances the schedule to the next tick, and may enqueue.
-- Parameters: name, tick (the next_at that was read), overlap (as it was read), next_at and due_at, and the timing that
-- they were computed from. Rows: schedule columns, as they are now; none for every other client.
-- Safe: a second update waits for the first, then finds another next_at; a task that is enqueued in the same
-- transaction is stored if and only if the schedule advanced. The client has read in one statement that next_at is this
-- tick and that no task of the schedule is unfinished. Every tick before was enqueued by a transaction that moved next_at
-- to this tick or further, and next_at has not moved since: so no tick has enqueued a task after that read.
UPDATE dibs_schedules SET next_at = :next_at, due_at = :due_at
WHERE name = :name AND enabled AND next_at = :tick AND overlap = :overlap AND {{same_timing}}
RETURNING {{schedule}}

-- name: record_tick
-- Promise: the schedule shows how its last tick went; after a refused tick, the last good one is shown too.
-- Parameters: name, last_at, last_task_id (NULL: unchanged), last_error, skipped (how many ticks were skipped for a task
-- that has not ended; they clear no error), last_skipped_at (the last of them; NULL: unchanged). Rows: none.
UPDATE dibs_schedules
SET last_at = coalesce(:last_at, last_at), last_task_id = coalesce(:last_task_id, last_task_id),
    last_error = CASE WHEN CAST(:last_at AS bigint) IS NULL AND CAST(:last_skipped_at AS bigint) IS NOT NULL
                      THEN coalesce(:last_error, last_error) ELSE :last_error END, skipped = skipped + :skipped, last_skipped_at = coalesce(:last_skipped_at, last_skipped_at)
WHERE name = :name AND (CAST(:last_at AS bigint) IS NOT NULL OR CAST(:last_skipped_at AS bigint) IS NOT NULL
                        OR last_error {{differs_from}} :last_error)
