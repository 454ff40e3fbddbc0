-- Promise: as next_due.sql, of these queues only: of their tasks those among the first `reach` of the store, so that
-- other queues' tasks cannot slow it down. NULL where none of those is theirs: then the caller polls.
-- Parameters: queues, now. Words: reach. Rows as in next_due.sql. Indexes: dibs_tasks_due, dibs_tasks_leases.
SELECT
    (SELECT min(run_at) FROM (SELECT run_at, queue FROM dibs_tasks INDEXED BY dibs_tasks_due WHERE state = 'scheduled'
                              ORDER BY run_at LIMIT {{reach}})
     WHERE queue IN (SELECT value FROM json_each(:queues))) - :now,
    (SELECT min(lease_until) FROM (SELECT lease_until, queue FROM dibs_tasks INDEXED BY dibs_tasks_leases
                                   WHERE state = 'claimed' ORDER BY lease_until LIMIT {{reach}})
     WHERE queue IN (SELECT value FROM json_each(:queues))) - :now,
    (SELECT min(next_at) FROM dibs_schedules
     WHERE enabled AND next_at >= :now - 60000000 AND queue IN (SELECT value FROM json_each(:queues))) - :now
