-- Promise: of all who saw this tick come, one moves the schedule on to the next, and may enqueue.
-- Parameters: name, due_at (the next_at that was read), next_at, and the cron and time zone that it was computed from.
-- Rows: schedule columns, as they are now; none for everybody else.
-- Safe: a second update waits for the first, then finds another next_at; whatever is enqueued in the same transaction
-- is there if and only if the schedule moved on.
UPDATE dibs_schedules SET next_at = :next_at
WHERE name = :name AND enabled AND next_at = :due_at AND cron = :cron AND timezone = :timezone
RETURNING {{schedule}}
