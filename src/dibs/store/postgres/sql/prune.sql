-- Promise: up to `limit` tasks of this queue and type that have been in this final state for longer than `kept` are
-- deleted. Steps are pruned with their workflow (see prune_steps.sql).
-- Parameters: state, queue, type, kept, limit, now, by. Rows: history columns. Index: dibs_tasks_kept, in its order: the
-- rows are compared as a range of it, because PostgreSQL expects few rows of an equal queue and type, and would read and
-- sort all of them.
-- Safe: rows that another client is retrying, or another prune is deleting, are skipped.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE state IN ('completed', 'failed', 'cancelled') AND state = %(state)s AND workflow_id IS NULL
      AND (queue, type, finished_at) >= (%(queue)s COLLATE "C", %(type)s COLLATE "C", 0)
      AND (queue, type, finished_at)
          <= (%(queue)s COLLATE "C", %(type)s COLLATE "C", (SELECT now FROM moment) - %(kept)s)
    ORDER BY queue, type, finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    DELETE FROM dibs_tasks AS task USING old WHERE task.id = old.id
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
