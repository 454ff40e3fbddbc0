-- Promise: the schedule does not tick until it is enabled. Parameters: name, now.
-- Rows: schedule columns, none if it is disabled already or gone.
WITH {{moment}}
UPDATE dibs_schedules SET enabled = false, updated_at = moment.now FROM moment WHERE name = %(name)s AND enabled
RETURNING {{schedule}}
