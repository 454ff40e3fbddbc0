-- Promise: of the tasks in this final state that finished after one moment and up to another, up to `limit` are deleted
-- that are past their own retention: by the rule for their type, else for their queue, else `kept`. A rule without a
-- retention (NULL) keeps for ever. Steps are pruned with their workflow (see prune_steps.sql).
-- Parameters: state, after, until, shortest (retention in the state), kept (NULL: for ever), limit, now, by.
-- Rows: history columns, finished_at. Index: dibs_tasks_finished, between the two moments.
-- Safe: state, time and rules are compared in the statement that deletes, again where a row changed meanwhile. Rows that
-- another client is retrying, or another prune is deleting, are skipped; rows that are kept are not locked.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT task.id FROM dibs_tasks AS task
    LEFT JOIN dibs_retention AS of_type
        ON of_type.records = %(state)s AND of_type.scope = 'type' AND of_type.name = task.type
    LEFT JOIN dibs_retention AS of_queue
        ON of_queue.records = %(state)s AND of_queue.scope = 'queue' AND of_queue.name = task.queue
    WHERE task.state IN ('completed', 'failed', 'cancelled') AND task.state = %(state)s
      AND task.finished_at > %(after)s
      AND task.finished_at <= least(%(until)s, (SELECT now FROM moment) - %(shortest)s)
      AND task.workflow_id IS NULL
      AND task.finished_at <= (SELECT now FROM moment)
          - CASE WHEN of_type.name IS NOT NULL THEN of_type.kept
                 WHEN of_queue.name IS NOT NULL THEN of_queue.kept ELSE %(kept)s::bigint END
    ORDER BY task.finished_at LIMIT {{limit}} FOR UPDATE OF task SKIP LOCKED
),
changed AS (
    DELETE FROM dibs_tasks AS task USING old WHERE task.id = old.id
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail, task.finished_at
),
{{noted}}
SELECT * FROM changed
