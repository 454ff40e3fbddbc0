-- Promise: every queue and type that has tasks in this final state, with the age of the task that finished first.
-- Steps are not among them: they are pruned with their workflow (see prune_steps.sql).
-- Parameters: state, now. Rows: (queue, type, age in microseconds).
-- Index: dibs_tasks_kept, two probes for each row, however many tasks there are: the next type of the queue, else the next
-- queue. SQLite would read every task of a line to find the next one by (queue, type) > (:queue, :type).
WITH RECURSIVE line (queue, type, finished_at) AS (
    SELECT queue, type, finished_at
    FROM (SELECT queue, type, finished_at FROM dibs_tasks INDEXED BY dibs_tasks_kept
          WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND workflow_id IS NULL
          ORDER BY queue, type, finished_at LIMIT 1)
    UNION ALL
    SELECT next.queue, next.type, next.finished_at
    FROM line JOIN dibs_tasks AS next ON next.id = coalesce(
        (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_kept
         WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND workflow_id IS NULL
           AND queue = line.queue AND type > line.type
         ORDER BY type, finished_at LIMIT 1),
        (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_kept
         WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND workflow_id IS NULL
           AND queue > line.queue
         ORDER BY queue, type, finished_at LIMIT 1))
)
SELECT queue, type, :now - finished_at FROM line
