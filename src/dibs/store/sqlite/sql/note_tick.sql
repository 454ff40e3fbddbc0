-- Promise: the schedule shows how its last tick went; where it was refused, also the last good one.
-- Parameters: name, last_at, last_task_id (NULL: as they were), last_error. Rows: none.
UPDATE dibs_schedules
SET last_at = coalesce(:last_at, last_at), last_task_id = coalesce(:last_task_id, last_task_id),
    last_error = :last_error
WHERE name = :name AND (:last_at IS NOT NULL OR last_error IS NOT :last_error)
