-- Promise: how long until the clock alone makes something claimable; negative where it could be already.
-- Rows: one, (until the next scheduled task is due, until the next lease runs out, until the next schedule ticks);
-- NULL where there is none. A schedule that is late by more than a minute waits for a worker that can tick it (that
-- knows its time zone, say): upkeep keeps looking after it, but nobody should hurry for it.
-- Indexes: dibs_tasks_due, dibs_tasks_leases, dibs_schedules_due, the first entry of each.
WITH {{moment}}
SELECT
    (SELECT run_at FROM dibs_tasks WHERE state = 'scheduled' ORDER BY run_at LIMIT 1) - now,
    (SELECT lease_until FROM dibs_tasks WHERE state = 'claimed' ORDER BY lease_until LIMIT 1) - now,
    (SELECT next_at FROM dibs_schedules WHERE enabled AND next_at >= now - 60000000 ORDER BY next_at LIMIT 1) - now
FROM moment
