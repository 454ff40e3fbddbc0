-- How long records are kept, and what is deleted after that.
-- Locks: one transaction writes at a time; it holds the lock of the file from its first statement to its commit.

-- name: set_retention
-- Promise: the rule is stored; one with the same scope and name is changed to it. Nothing changes where it is the same.
-- Parameters: records, scope, name, kept, by, now. Rows: (records) of what changed; none where nothing did.
INSERT INTO dibs_retention (records, scope, name, kept, changed_at, changed_by)
VALUES (:records, :scope, :name, :kept, :now, :by)
ON CONFLICT (records, scope, name) DO UPDATE
SET kept = excluded.kept, changed_at = excluded.changed_at, changed_by = excluded.changed_by
WHERE kept IS NOT excluded.kept
RETURNING records

-- name: note_retention
-- Promise: a change of a retention rule is recorded, with its author. Parameters: records, scope, name, kept, removed,
-- by, now. Rows: none. Safe: in the transaction of the change, after it.
INSERT INTO dibs_retention_changes (at, by, records, scope, name, kept, removed)
VALUES (:now, :by, :records, :scope, :name, :kept, :removed)

-- name: prune
-- Promise: up to `limit` tasks that have been in this final state for longer than `kept` are deleted.
-- For states whose tasks all have the same retention (see `prune_walked`). Steps are pruned with their workflow (see
-- `prune_steps`).
-- Parameters: state, kept, limit, now. Rows: history columns. Index: dibs_tasks_finished.
DELETE FROM dibs_tasks
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_finished
             WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND finished_at <= :now - :kept
               AND workflow_id IS NULL
             ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL

-- name: walk_finished
-- Promise: when the last task of the next stretch of tasks in this final state finished: the task `span` places after the
-- first that finished after `after`.
-- Parameters: state, after, kept (the shortest retention in the state), now. Words: span.
-- Rows: (finished_at); none where that task has not been finished for `kept`, or there are fewer tasks.
-- Index: dibs_tasks_finished, alone.
SELECT finished_at
FROM (SELECT finished_at FROM dibs_tasks INDEXED BY dibs_tasks_finished
      WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND finished_at > :after
      ORDER BY finished_at LIMIT 1 OFFSET {{span}})
WHERE finished_at <= :now - :kept

-- name: prune_walked
-- Promise: of the tasks in this final state that finished after one moment and up to another, up to `limit` are deleted
-- that are past their own retention: by the rule for their type, else for their queue, else `kept`. A rule without a
-- retention (NULL) keeps for ever. Steps are pruned with their workflow (see `prune_steps`).
-- Parameters: state, after, until, shortest (retention in the state), kept (NULL: for ever), limit, now.
-- Rows: history columns, finished_at. Index: dibs_tasks_finished, between the two moments; the rules by their key.
-- Safe: the write lock is held: state, time and rules are compared in the statement that deletes.
DELETE FROM dibs_tasks
WHERE id IN (SELECT task.id FROM dibs_tasks AS task INDEXED BY dibs_tasks_finished
             LEFT JOIN dibs_retention AS of_type
                 ON of_type.records = :state AND of_type.scope = 'type' AND of_type.name = task.type
             LEFT JOIN dibs_retention AS of_queue
                 ON of_queue.records = :state AND of_queue.scope = 'queue' AND of_queue.name = task.queue
             WHERE task.state IN ('completed', 'failed', 'cancelled') AND task.state = :state
               AND task.finished_at > :after AND task.finished_at <= min(:until, :now - :shortest)
               AND task.workflow_id IS NULL
               AND task.finished_at <= :now - CASE WHEN of_type.name IS NOT NULL THEN of_type.kept
                                                   WHEN of_queue.name IS NOT NULL THEN of_queue.kept ELSE :kept END
             ORDER BY task.finished_at LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL, finished_at

-- name: old_workflow_lines
-- Promise: every name and list of queues that has workflows in this final state, with the age of the workflow that ended
-- first. Sub-workflows are pruned with their root.
-- Parameters: state, now. Rows: (name, first 300 characters of the list of queues, age in microseconds).
-- Index: dibs_workflows_kept, two probes for each row, however many workflows there are: the next list
-- of queues of the name, else the next name. SQLite would read every workflow of a line to find the next line by
-- (name, queues) > (:name, :queues).
WITH RECURSIVE line (name, queues, finished_at) AS (
    SELECT name, queues, finished_at
    FROM (SELECT name, substr(queues, 1, 300) AS queues, finished_at FROM dibs_workflows INDEXED BY dibs_workflows_kept
          WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
          ORDER BY name, substr(queues, 1, 300), finished_at LIMIT 1)
    UNION ALL
    SELECT next.name, substr(next.queues, 1, 300), next.finished_at
    FROM line JOIN dibs_workflows AS next ON next.id = coalesce(
        (SELECT id FROM dibs_workflows AS flow INDEXED BY dibs_workflows_kept
         WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
           AND name = line.name AND substr(flow.queues, 1, 300) > line.queues
         ORDER BY substr(flow.queues, 1, 300), finished_at LIMIT 1),
        (SELECT id FROM dibs_workflows AS flow INDEXED BY dibs_workflows_kept
         WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state AND name > line.name
         ORDER BY name, substr(flow.queues, 1, 300), finished_at LIMIT 1))
)
SELECT name, queues, :now - finished_at FROM line

-- name: old_workflows
-- Promise: up to `limit` workflows of this name and list of queues that have been in this final state for longer than
-- `kept`, without sub-workflows. Parameters: state, name, queues (the first 300 characters), kept, limit, now.
-- Rows: (id). Index: dibs_workflows_kept.
SELECT id FROM dibs_workflows INDEXED BY dibs_workflows_kept
WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state AND name = :name
  AND substr(queues, 1, 300) = :queues AND finished_at <= :now - :kept
ORDER BY finished_at LIMIT {{limit}}

-- name: prune_steps
-- Promise: up to `limit` tasks of these trees of workflows are deleted. Parameters: ids (of the roots), limit, now.
-- Rows: history columns. Programs that do not know workflows may have deleted some before.
DELETE FROM dibs_tasks
WHERE id IN (SELECT step.task_id FROM dibs_steps AS step JOIN dibs_tasks AS old ON old.id = step.task_id
             WHERE step.workflow_id IN
                      (SELECT id FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids)) UNION ALL
                       SELECT id FROM dibs_workflows WHERE root_id IN (SELECT value FROM json_each(:ids)))
             LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL

-- name: forget_checkpoints
-- Promise: what these tasks have kept is gone. Parameters: ids. Rows: none.
DELETE FROM dibs_checkpoints WHERE task_id IN (SELECT value FROM json_each(:ids))

-- name: forget_steps
-- Promise: these tasks are no steps any more. Parameters: ids. Rows: none. Their edges go with them, see `forget_edges`.
DELETE FROM dibs_steps WHERE task_id IN (SELECT value FROM json_each(:ids))

-- name: forget_edges
-- Promise: nobody waits for these tasks, nor they for anybody. Parameters: ids. Rows: none.
DELETE FROM dibs_edges WHERE parent_id IN (SELECT value FROM json_each(:ids))
    OR child_id IN (SELECT value FROM json_each(:ids))

-- name: leave_pruned
-- Promise: of these workflows some steps are deleted already: nobody can retry what is left. Parameters: ids. Rows: none.
UPDATE dibs_workflows SET stopping = 'pruned' WHERE id IN (SELECT value FROM json_each(:ids))

-- name: forget_lost_steps
-- Promise: these trees have no steps any more, also where programs that do not know workflows have pruned the tasks.
-- Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_steps
WHERE workflow_id IN (SELECT id FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids)) UNION ALL
                       SELECT id FROM dibs_workflows WHERE root_id IN (SELECT value FROM json_each(:ids)))

-- name: forget_attempts
-- Promise: the recorded wishes to finalize the workflows of these trees are gone. Parameters: ids (of the roots).
-- Rows: none.
DELETE FROM dibs_finalization_attempts
WHERE workflow_id IN (SELECT id FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids)) UNION ALL
                       SELECT id FROM dibs_workflows WHERE root_id IN (SELECT value FROM json_each(:ids)))

-- name: forget_workflows
-- Promise: these trees of workflows are gone. Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_workflows
WHERE id IN (SELECT id FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids)) UNION ALL
                       SELECT id FROM dibs_workflows WHERE root_id IN (SELECT value FROM json_each(:ids)))

-- name: prune_history
-- Promise: up to `limit` of the oldest lines of history are deleted, if older than `kept`. Rows: (id).
-- Index: the primary key; lines are appended in time order, so the oldest are at its beginning.
DELETE FROM dibs_history
WHERE id IN (SELECT id FROM dibs_history ORDER BY id LIMIT {{limit}}) AND at <= :now - :kept
RETURNING id

-- name: prune_attempts
-- Promise: up to `limit` recorded wishes to finalize that are older than `kept` are deleted, oldest first.
-- Parameters: kept, limit, now. Rows: (id).
DELETE FROM dibs_finalization_attempts
WHERE id IN (SELECT id FROM dibs_finalization_attempts ORDER BY id LIMIT {{limit}}) AND at <= :now - :kept
RETURNING id
