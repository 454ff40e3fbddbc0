-- Promise: up to `limit` tasks of the dead letter that match are discarded, the oldest failures first.
-- Parameters: queue, type, error (text in its type and message), each if given; now. Words: conditions, limit.
-- Rows: history columns. Index: dibs_tasks_dead. Safe: this transaction alone writes.
UPDATE dibs_tasks SET set_aside = 'discarded'
WHERE id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_dead
    WHERE state = 'failed' AND set_aside IS NULL {{conditions}}
    ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'discarded', 'failed', state, NULL, token, NULL
