-- Promise: the enabled schedules whose next tick has come, the longest due first. Rows: (now, schedule columns).
-- Index: dibs_schedules_due. A plain read: tick_schedule decides who enqueues.
WITH {{moment}}
SELECT moment.now, {{schedule}} FROM dibs_schedules, moment
WHERE enabled AND next_at <= moment.now ORDER BY next_at, name
