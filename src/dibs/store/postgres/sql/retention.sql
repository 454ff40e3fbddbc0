-- How long records are kept, and what is deleted after that.
-- Locks: the roots of workflow trees in the order of their ids (hold_workflows), then tasks in the order of their ids (in_turn,
-- hold_tasks); a statement that takes what it finds passes over rows that are locked (SKIP LOCKED).

-- name: set_retention
-- Promise: the rule is stored; one with the same scope and name is changed to it. Nothing changes where it is the same.
-- Parameters: records, scope, name, kept, by, now. Rows: (records) of what changed; none where nothing did.
-- Safe: two clients that set the same rule wait for each other at its row, and the second sees what the first stored.
WITH {{moment}}
INSERT INTO dibs_retention AS rule (records, scope, name, kept, changed_at, changed_by)
SELECT :records, :scope, :name, :kept::bigint, moment.now, :by::text FROM moment
ON CONFLICT (records, scope, name) DO UPDATE
SET kept = excluded.kept, changed_at = excluded.changed_at, changed_by = excluded.changed_by
WHERE rule.kept IS DISTINCT FROM excluded.kept
RETURNING records

-- name: note_retention
-- Promise: a change of a retention rule is recorded, with its author. Parameters: records, scope, name, kept, removed,
-- by, now. Rows: none. Safe: in the transaction of the change, after it: while the rule's row is locked.
WITH {{moment}}
INSERT INTO dibs_retention_changes (at, by, records, scope, name, kept, removed)
SELECT moment.now, :by::text, :records, :scope, :name, :kept::bigint, :removed::boolean FROM moment

-- name: prune
-- Promise: up to `limit` tasks that have been in this final state for longer than `kept` are deleted.
-- For states whose tasks all have the same retention (see `prune_walked`). Steps are pruned with their workflow (see
-- `prune_steps`).
-- Parameters: state, kept, limit, now, by. Rows: history columns. Index: dibs_tasks_finished.
-- Safe: rows that another client is retrying, or another prune is deleting, are skipped.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state
      AND finished_at <= (SELECT now FROM moment) - :kept AND workflow_id IS NULL
    ORDER BY finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
),
changed AS (
    DELETE FROM dibs_tasks AS task USING old WHERE task.id = old.id
    RETURNING task.id AS task_id, 'pruned' AS event, task.state AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: walk_finished
-- Promise: when the last task of the next stretch of tasks in this final state finished: the task `span` places after the
-- first that finished after `after`.
-- Parameters: state, after, kept (the shortest retention in the state), now. Words: span.
-- Rows: (finished_at); none where that task has not been finished for `kept`, or there are fewer tasks.
-- Index: dibs_tasks_finished, in its order. The upper bound is compared afterwards, because PostgreSQL expects few rows
-- between two bounds, and would read and sort all of them.
WITH {{moment}},
last AS MATERIALIZED (
    SELECT finished_at FROM dibs_tasks
    WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND finished_at > :after
    ORDER BY finished_at LIMIT 1 OFFSET {{span}}
)
SELECT last.finished_at FROM last, moment WHERE last.finished_at <= moment.now - :kept

-- name: prune_walked
-- Promise: of the tasks in this final state that finished after one moment and up to another, up to `limit` are deleted
-- that are past their own retention: by the rule for their type, else for their queue, else `kept`. A rule without a
-- retention (NULL) keeps for ever. Steps are pruned with their workflow (see `prune_steps`).
-- Parameters: state, after, until, shortest (retention in the state), kept (NULL: for ever), limit, now, by.
-- Rows: history columns, finished_at. Index: dibs_tasks_finished, between the two moments.
-- Safe: state, time and rules are compared in the statement that deletes, again where a row changed meanwhile. Rows that
-- another client is retrying, or another prune is deleting, are skipped; rows that are kept are not locked.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT task.id FROM dibs_tasks AS task
    LEFT JOIN dibs_retention AS of_type
        ON of_type.records = :state AND of_type.scope = 'type' AND of_type.name = task.type
    LEFT JOIN dibs_retention AS of_queue
        ON of_queue.records = :state AND of_queue.scope = 'queue' AND of_queue.name = task.queue
    WHERE task.state IN ('completed', 'failed', 'cancelled') AND task.state = :state
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
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail, task.finished_at
),
{{noted}}
SELECT * FROM changed

-- name: old_workflow_lines
-- Promise: every name and list of queues that has workflows in this final state, with the age of the workflow that ended
-- first. Sub-workflows are pruned with their root.
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
-- Safe: the workflows are locked, so that no client retries them meanwhile; those that are locked already are skipped.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
  AND (name, left(queues, 300) COLLATE "C", finished_at) >= (:name COLLATE "C", :queues, 0)
  AND (name, left(queues, 300) COLLATE "C", finished_at)
      <= (:name COLLATE "C", :queues, (SELECT now FROM moment) - :kept)
ORDER BY name, left(queues, 300) COLLATE "C", finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED

-- name: prune_steps
-- Promise: up to `limit` tasks of these trees of workflows are deleted. Parameters: ids (of the roots), limit, now.
-- Rows: history columns. Index: dibs_steps_names, workflow by workflow (OFFSET 0 keeps the planner from anything else).
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
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: forget_checkpoints
-- Promise: what these tasks have kept is gone. Parameters: ids. Rows: none.
DELETE FROM dibs_checkpoints WHERE task_id = ANY(:ids::bigint[])

-- name: forget_steps
-- Promise: these tasks are no steps any more. Parameters: ids. Rows: none. Their edges go with them, see `forget_edges`.
DELETE FROM dibs_steps WHERE task_id = ANY(:ids::bigint[])

-- name: forget_edges
-- Promise: nobody waits for these tasks, nor they for anybody. Parameters: ids. Rows: none.
DELETE FROM dibs_edges WHERE parent_id = ANY(:ids::bigint[]) OR child_id = ANY(:ids::bigint[])

-- name: leave_pruned
-- Promise: of these workflows some steps are deleted already: nobody can retry what is left. Parameters: ids. Rows: none.
UPDATE dibs_workflows SET stopping = 'pruned' WHERE id = ANY(:ids::bigint[])

-- name: forget_lost_steps
-- Promise: these trees have no steps any more, also where programs that do not know workflows have pruned the tasks.
-- Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_steps
WHERE workflow_id = ANY (ARRAY(SELECT id FROM dibs_workflows WHERE id = ANY(:ids::bigint[]) UNION ALL
                              SELECT id FROM dibs_workflows WHERE root_id = ANY(:ids::bigint[])))

-- name: forget_attempts
-- Promise: the recorded wishes to finalize the workflows of these trees are gone. Parameters: ids (of the roots).
-- Rows: none.
DELETE FROM dibs_finalization_attempts
WHERE workflow_id = ANY (ARRAY(SELECT id FROM dibs_workflows WHERE id = ANY(:ids::bigint[]) UNION ALL
                              SELECT id FROM dibs_workflows WHERE root_id = ANY(:ids::bigint[])))

-- name: forget_workflows
-- Promise: these trees of workflows are gone. Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_workflows
WHERE id = ANY (ARRAY(SELECT id FROM dibs_workflows WHERE id = ANY(:ids::bigint[]) UNION ALL
                              SELECT id FROM dibs_workflows WHERE root_id = ANY(:ids::bigint[])))

-- name: prune_history
-- Promise: up to `limit` of the oldest lines of history are deleted, if older than `kept`. Rows: (id).
-- Index: the primary key; lines are appended in time order, so the oldest are at its beginning.
WITH {{moment}},
oldest AS MATERIALIZED (SELECT id FROM dibs_history ORDER BY id LIMIT {{limit}} FOR UPDATE SKIP LOCKED)
DELETE FROM dibs_history AS past USING oldest, moment
WHERE past.id = oldest.id AND past.at <= moment.now - :kept
RETURNING past.id

-- name: prune_attempts
-- Promise: up to `limit` recorded wishes to finalize that are older than `kept` are deleted, oldest first.
-- Parameters: kept, limit, now. Rows: (id).
WITH {{moment}}
DELETE FROM dibs_finalization_attempts
WHERE id = ANY (ARRAY(SELECT id FROM dibs_finalization_attempts ORDER BY id LIMIT {{limit}}))
  AND at <= (SELECT now FROM moment) - :kept
RETURNING id
