-- Promise: up to `limit` scheduled tasks that are due are pending. Parameters: limit, now. Rows: history columns.
-- Index: dibs_tasks_due. Safe: any number of promoters, each moves rows that still are scheduled.
UPDATE dibs_tasks
SET state = 'pending', ready_at = :now, {{fresh_keys: dibs_tasks.attempts_left}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_due
             WHERE state = 'scheduled' AND run_at <= :now ORDER BY run_at LIMIT {{limit}})
RETURNING id, 'promoted', 'scheduled', state, NULL, token, NULL
