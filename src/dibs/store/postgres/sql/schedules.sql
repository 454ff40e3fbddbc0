-- Schedules: tasks that are enqueued by a cron expression.
-- Locks: the roots of workflow trees in the order of their ids (hold_workflows), then tasks in the order of their ids (in_turn,
-- hold_tasks); a statement that takes what it finds passes over rows that are locked (SKIP LOCKED).

-- name: put_schedule
-- Promise: the schedule is stored as given, or changed to it; the same again changes nothing (no row then).
-- A changed cron or time zone, and enabling, begin anew at the given next_at; other changes keep the tick that is next.
-- Parameters: the schedule's values (enabled NULL: as it is, true for a new one), now. Rows: schedule columns.
WITH {{moment}}
INSERT INTO dibs_schedules AS known (
    name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
    backoff_cap, source, next_at, created_at, updated_at
)
SELECT :name, :cron, :timezone, :catch_up, coalesce(:enabled::boolean, true), :type, :params,
       :queue, :priority, :max_attempts, :timeout::bigint, :backoff_base, :backoff_cap, :source,
       :next_at, moment.now, moment.now
FROM moment
ON CONFLICT (name) DO UPDATE SET
    cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
    enabled = coalesce(:enabled::boolean, known.enabled), type = excluded.type, params = excluded.params,
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, backoff_base = excluded.backoff_base, backoff_cap = excluded.backoff_cap,
    source = excluded.source, updated_at = excluded.updated_at,
    next_at = CASE WHEN known.cron = excluded.cron AND known.timezone = excluded.timezone
                        AND known.enabled >= coalesce(:enabled::boolean, false)
                   THEN known.next_at ELSE excluded.next_at END
WHERE (known.cron, known.timezone, known.catch_up, known.enabled, known.type, known.params, known.queue,
       known.priority, known.max_attempts, known.timeout, known.backoff_base, known.backoff_cap, known.source)
    IS DISTINCT FROM
      (excluded.cron, excluded.timezone, excluded.catch_up, coalesce(:enabled::boolean, known.enabled),
       excluded.type, excluded.params, excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout,
       excluded.backoff_base, excluded.backoff_cap, excluded.source)
RETURNING {{schedule}}

-- name: get_schedule
-- Promise: the schedule of this name, and the database's time even if there is none. Parameters: name.
-- Rows: one, (now, schedule columns); all but the time are NULL where there is no such schedule.
WITH {{moment}}
SELECT moment.now, {{schedule}} FROM moment LEFT JOIN dibs_schedules ON name = :name

-- name: enable_schedule
-- Promise: the disabled schedule ticks again, from next_at on.
-- Parameters: name, next_at, and the cron and time zone that it was computed from; now.
-- Rows: schedule columns, none if it is enabled, gone, or has another cron by now.
WITH {{moment}}
UPDATE dibs_schedules SET enabled = true, next_at = :next_at, updated_at = moment.now FROM moment
WHERE name = :name AND NOT enabled AND cron = :cron AND timezone = :timezone
RETURNING {{schedule}}

-- name: disable_schedule
-- Promise: the schedule does not tick until it is enabled. Parameters: name, now.
-- Rows: schedule columns, none if it is disabled already or gone.
WITH {{moment}}
UPDATE dibs_schedules SET enabled = false, updated_at = moment.now FROM moment WHERE name = :name AND enabled
RETURNING {{schedule}}

-- name: due_schedules
-- Promise: the enabled schedules whose next tick has come, the longest due first. Rows: (now, schedule columns).
-- Index: dibs_schedules_due. A plain read: tick_schedule decides who enqueues.
WITH {{moment}}
SELECT moment.now, {{schedule}} FROM dibs_schedules, moment
WHERE enabled AND next_at <= moment.now ORDER BY next_at, name

-- name: note_tick
-- Promise: the schedule shows how its last tick went; where it was refused, also the last good one.
-- Parameters: name, last_at, last_task_id (NULL: as they were), last_error. Rows: none.
UPDATE dibs_schedules
SET last_at = coalesce(:last_at, last_at), last_task_id = coalesce(:last_task_id, last_task_id),
    last_error = :last_error
WHERE name = :name AND (:last_at::bigint IS NOT NULL OR last_error IS DISTINCT FROM :last_error)
