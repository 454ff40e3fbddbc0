-- Promise: the schedule of this name, and the database's time even if there is none. Parameters: name.
-- Rows: one, (now, schedule columns); all but the time are NULL where there is no such schedule.
SELECT :now, {{schedule}} FROM (SELECT 1) LEFT JOIN dibs_schedules ON name = :name
