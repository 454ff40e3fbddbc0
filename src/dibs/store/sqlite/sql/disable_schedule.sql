-- Promise: the schedule does not tick until it is enabled. Parameters: name, now.
-- Rows: schedule columns, none if it is disabled already or gone.
UPDATE dibs_schedules SET enabled = 0, updated_at = :now WHERE name = :name AND enabled RETURNING {{schedule}}
