-- Promise: all schedules, by name. Rows: schedule columns.
SELECT {{schedule}} FROM dibs_schedules ORDER BY name
