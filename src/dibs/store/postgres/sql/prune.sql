-- Promise: up to `limit` tasks that have been in this final state for longer than `kept` are deleted.
-- For states whose tasks all have the same retention (see prune_walked.sql). Steps are pruned with their workflow (see
-- prune_steps.sql).
-- Parameters: state, kept, limit, now, by. Rows: history columns. Index: dibs_tasks_finished.
-- Safe: rows that another client is retrying, or another prune is deleting, are skipped.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE state IN ('completed', 'failed', 'cancelled') AND state = %(state)s
      AND finished_at <= (SELECT now FROM moment) - %(kept)s AND workflow_id IS NULL
    ORDER BY finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    DELETE FROM dibs_tasks AS task USING old WHERE task.id = old.id
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
