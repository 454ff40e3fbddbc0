-- Promise: as next_due.sql, of these queues only: of their tasks those among the first `reach` of the store, so that
-- other queues' tasks cannot slow it down. NULL where none of those is theirs: then the caller polls.
-- Parameters: queues, now. Words: reach. Rows as in next_due.sql. Indexes: dibs_tasks_due, dibs_tasks_leases.
WITH {{moment}}
SELECT
    (SELECT run_at FROM (SELECT run_at, queue FROM dibs_tasks WHERE state = 'scheduled'
                         ORDER BY run_at LIMIT {{reach}}) AS task
     WHERE task.queue = ANY(%(queues)s::text[]) ORDER BY run_at LIMIT 1) - now,
    (SELECT lease_until FROM (SELECT lease_until, queue FROM dibs_tasks WHERE state = 'claimed'
                              ORDER BY lease_until LIMIT {{reach}}) AS task
     WHERE task.queue = ANY(%(queues)s::text[]) ORDER BY lease_until LIMIT 1) - now,
    (SELECT min(next_at) FROM dibs_schedules
     WHERE enabled AND next_at >= now - 60000000 AND queue = ANY(%(queues)s::text[])) - now
FROM moment
