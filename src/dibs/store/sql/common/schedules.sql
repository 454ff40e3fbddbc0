-- Schedules: tasks that are enqueued by a cron expression.
-- Locks: those of the engine, see the file of the same theme there.

-- fragment: schedule
-- The columns of a schedule, in the order in which Python reads them.
name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
backoff_cap, source, next_at, created_at, updated_at, last_at, last_task_id, last_error

-- name: list_schedules
-- Promise: all schedules, by name. Rows: schedule columns.
SELECT {{schedule}} FROM dibs_schedules ORDER BY name

-- name: remove_schedule
-- Promise: the schedule is gone; the tasks that it enqueued stay.
-- Parameters: name. Rows: (name), none if there was none.
DELETE FROM dibs_schedules WHERE name = :name RETURNING name

-- name: tick_schedule
-- Promise: of all who saw this tick come, one moves the schedule on to the next, and may enqueue.
-- Parameters: name, due_at (the next_at that was read), next_at, and the cron and time zone that it was computed from.
-- Rows: schedule columns, as they are now; none for everybody else.
-- Safe: a second update waits for the first, then finds another next_at; whatever is enqueued in the same transaction
-- is there if and only if the schedule moved on.
UPDATE dibs_schedules SET next_at = :next_at
WHERE name = :name AND enabled AND next_at = :due_at AND cron = :cron AND timezone = :timezone
RETURNING {{schedule}}
