-- Promise: the enabled schedules whose next tick has come, the longest due first. Rows: (now, schedule columns).
-- Index: dibs_schedules_due. A plain read: tick_schedule decides who enqueues.
SELECT :now, {{schedule}} FROM dibs_schedules WHERE enabled AND next_at <= :now ORDER BY next_at, name
