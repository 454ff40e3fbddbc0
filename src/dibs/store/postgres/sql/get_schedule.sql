-- Promise: the schedule of this name, and the database's time even if there is none. Parameters: name.
-- Rows: one, (now, schedule columns); all but the time are NULL where there is no such schedule.
WITH {{moment}}
SELECT moment.now, {{schedule}} FROM moment LEFT JOIN dibs_schedules ON name = %(name)s
