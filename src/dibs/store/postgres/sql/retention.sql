-- The deletion of records past their retention.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: prune_walked
-- Promise: of the tasks in this final state that finished after one moment and up to another, up to `limit` are deleted
-- that are past their own retention: by the rule for their type, else for their queue, else `kept`. A rule without a
-- retention (NULL) keeps for ever. Steps are pruned with their workflow (see `prune_steps`).
-- Parameters: state, after, until, shortest (retention in the state), kept (NULL: for ever), limit, now, by.
-- Rows: history columns, permits, finished_at. Index: dibs_tasks_finished, between the two moments.
-- Safe: state, time and rules are compared in the statement that deletes, again where a row changed meanwhile. Rows
-- that another client is retrying, or another prune is deleting, are skipped; rows that are kept are not locked.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT task.id FROM dibs_tasks AS task
    LEFT JOIN dibs_retention AS of_type
        ON of_type.records = :state AND of_type.scope = 'type' AND of_type.name = task.type
    LEFT JOIN dibs_retention AS of_queue
        ON of_queue.records = :state AND of_queue.scope = 'queue' AND of_queue.name = task.queue
    WHERE task.state = :state
      AND task.finished_at > :after
      AND task.finished_at <= least(:until, (SELECT now FROM moment) - :shortest)
      AND task.workflow_id IS NULL
      AND task.finished_at <= (SELECT now FROM moment)
          - CASE WHEN of_type.name IS NOT NULL THEN of_type.kept
                 WHEN of_queue.name IS NOT NULL THEN of_queue.kept ELSE :kept::bigint END
    ORDER BY task.finished_at LIMIT {{limit}} FOR UPDATE OF task SKIP LOCKED
),
changed AS (
    DELETE FROM dibs_tasks AS task USING old WHERE task.id = old.id
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail, task.permits, task.finished_at
),
{{noted}}
SELECT * FROM changed

-- name: workflow_groups
-- Promise: every name and list of queues that has workflows in this final state, with the age of the workflow that
-- ended first. Sub-workflows are pruned with their root.
-- Parameters: state, now. Rows: (name, first 300 characters of the list of queues, age in microseconds).
-- Index: dibs_workflows_kept, one probe for each row, however many workflows there are.
WITH RECURSIVE {{moment}},
line (name, queues, finished_at) AS (
    (SELECT name, left(queues, 300) COLLATE "C", finished_at FROM dibs_workflows
     WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
     ORDER BY name, left(queues, 300) COLLATE "C", finished_at LIMIT 1)
    UNION ALL
    SELECT next.name, next.queues, next.finished_at
    FROM line CROSS JOIN LATERAL (
        SELECT name, left(flow.queues, 300) COLLATE "C" AS queues, finished_at FROM dibs_workflows AS flow
        WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
          AND (name, left(flow.queues, 300) COLLATE "C") > (line.name, line.queues)
        ORDER BY name, left(flow.queues, 300) COLLATE "C", finished_at LIMIT 1) AS next
)
SELECT line.name, line.queues, moment.now - line.finished_at FROM line, moment

-- name: old_workflows
-- Promise: up to `limit` workflows of this name and list of queues that have been in this final state for longer than
-- `kept`, without sub-workflows. Parameters: state, name, queues (the first 300 characters), kept, limit, now.
-- Rows: (id). Index: dibs_workflows_kept, in its order: the rows are compared as a range of it, because PostgreSQL
-- expects few rows of an equal name and list of queues, and would read and sort all of them.
-- Safe: the workflows are locked, so that no client retries them meanwhile; workflows that are locked already are
-- skipped.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
  AND (name, left(queues, 300) COLLATE "C", finished_at) >= (:name COLLATE "C", :queues, 0)
  AND (name, left(queues, 300) COLLATE "C", finished_at)
      <= (:name COLLATE "C", :queues, (SELECT now FROM moment) - :kept)
ORDER BY name, left(queues, 300) COLLATE "C", finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED

-- name: prune_steps
-- Promise: up to `limit` tasks of these trees of workflows are deleted. Parameters: ids (of the roots), limit, now.
-- Rows: history columns, permits. Index: dibs_steps_names, workflow by workflow (OFFSET 0 keeps the planner from anything else).
-- Programs that do not know workflows may have deleted some before.
WITH {{moment}},
changed AS (
    DELETE FROM dibs_tasks AS task
    WHERE task.id = ANY (ARRAY(
        SELECT step.task_id
        FROM (SELECT id FROM dibs_workflows WHERE id = ANY(:ids::bigint[]) UNION ALL
              SELECT id FROM dibs_workflows WHERE root_id = ANY(:ids::bigint[])) AS workflow
        CROSS JOIN LATERAL (
            SELECT step.task_id FROM dibs_steps AS step JOIN dibs_tasks AS old ON old.id = step.task_id
            WHERE step.workflow_id = workflow.id OFFSET 0) AS step
        LIMIT {{limit}}))
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail, task.permits
),
{{noted}}
SELECT * FROM changed
