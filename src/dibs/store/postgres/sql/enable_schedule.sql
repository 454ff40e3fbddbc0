-- Promise: the disabled schedule ticks again, from next_at on.
-- Parameters: name, next_at, and the cron and time zone that it was computed from; now.
-- Rows: schedule columns, none if it is enabled, gone, or has another cron by now.
WITH {{moment}}
UPDATE dibs_schedules SET enabled = true, next_at = %(next_at)s, updated_at = moment.now FROM moment
WHERE name = %(name)s AND NOT enabled AND cron = %(cron)s AND timezone = %(timezone)s
RETURNING {{schedule}}
