-- Promise: the schedule shows how its last tick went; where it was refused, also the last good one.
-- Parameters: name, last_at, last_task_id (NULL: as they were), last_error. Rows: none.
UPDATE dibs_schedules
SET last_at = coalesce(%(last_at)s, last_at), last_task_id = coalesce(%(last_task_id)s, last_task_id),
    last_error = %(last_error)s
WHERE name = %(name)s AND (%(last_at)s::bigint IS NOT NULL OR last_error IS DISTINCT FROM %(last_error)s)
