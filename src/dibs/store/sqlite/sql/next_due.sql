-- Promise: how long until the clock alone makes something claimable; negative where it could be already.
-- Rows: one, (until the next scheduled task is due, until the next lease runs out, until the next schedule ticks);
-- NULL where there is none. A schedule that is late by more than a minute waits for a worker that can tick it (that
-- knows its time zone, say): upkeep keeps looking after it, but nobody should hurry for it.
-- Indexes: dibs_tasks_due, dibs_tasks_leases, dibs_schedules_due, the first entry of each.
SELECT
    (SELECT min(run_at) FROM dibs_tasks INDEXED BY dibs_tasks_due WHERE state = 'scheduled') - :now,
    (SELECT min(lease_until) FROM dibs_tasks INDEXED BY dibs_tasks_leases WHERE state = 'claimed') - :now,
    (SELECT min(next_at) FROM dibs_schedules INDEXED BY dibs_schedules_due
     WHERE enabled AND next_at >= :now - 60000000) - :now
