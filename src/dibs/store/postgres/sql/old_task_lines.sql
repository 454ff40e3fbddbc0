-- Promise: every queue and type that has tasks in this final state, with the age of the task that finished first.
-- Steps are not among them: they are pruned with their workflow (see prune_steps.sql).
-- Parameters: state, now. Rows: (queue, type, age in microseconds).
-- Index: dibs_tasks_kept, one probe for each row, however many tasks there are.
WITH RECURSIVE {{moment}},
line (queue, type, finished_at) AS (
    (SELECT queue, type, finished_at FROM dibs_tasks
     WHERE state IN ('completed', 'failed', 'cancelled') AND state = %(state)s AND workflow_id IS NULL
     ORDER BY queue, type, finished_at LIMIT 1)
    UNION ALL
    SELECT next.queue, next.type, next.finished_at
    FROM line CROSS JOIN LATERAL (
        SELECT queue, type, finished_at FROM dibs_tasks
        WHERE state IN ('completed', 'failed', 'cancelled') AND state = %(state)s AND workflow_id IS NULL
          AND (queue, type) > (line.queue, line.type)
        ORDER BY queue, type, finished_at LIMIT 1) AS next
)
SELECT line.queue, line.type, moment.now - line.finished_at FROM line, moment
