-- Promise: the disabled schedule ticks again, from next_at on.
-- Parameters: name, next_at, and the cron and time zone that it was computed from; now.
-- Rows: schedule columns, none if it is enabled, gone, or has another cron by now.
UPDATE dibs_schedules SET enabled = 1, next_at = :next_at, updated_at = :now
WHERE name = :name AND NOT enabled AND cron = :cron AND timezone = :timezone
RETURNING {{schedule}}
