-- The deletion of records past their retention.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: prune_walked
-- Promise: of the tasks in this final state that finished after one moment and up to another, up to `limit` are deleted
-- that are past their own retention: by the rule for their type, else for their queue, else `kept`. A rule without a
-- retention (NULL) keeps for ever. Steps are pruned with their workflow (see `prune_steps`).
-- Parameters: state, after, until, shortest (retention in the state), kept (NULL: for ever), limit, now.
-- Rows: history columns, permits, finished_at. Index: dibs_tasks_finished, between the two moments; the rules by their key.
-- Safe: the write lock is held: state, time and rules are compared in the statement that deletes.
DELETE FROM dibs_tasks
WHERE id IN (SELECT task.id FROM dibs_tasks AS task INDEXED BY dibs_tasks_finished
             LEFT JOIN dibs_retention AS of_type
                 ON of_type.records = :state AND of_type.scope = 'type' AND of_type.name = task.type
             LEFT JOIN dibs_retention AS of_queue
                 ON of_queue.records = :state AND of_queue.scope = 'queue' AND of_queue.name = task.queue
             WHERE task.state = :state
               AND task.finished_at > :after AND task.finished_at <= min(:until, :now - :shortest)
               AND task.workflow_id IS NULL
               AND task.finished_at <= :now - CASE WHEN of_type.name IS NOT NULL THEN of_type.kept
                                                   WHEN of_queue.name IS NOT NULL THEN of_queue.kept ELSE :kept END
             ORDER BY task.finished_at LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL, permits, finished_at

-- name: workflow_groups
-- Promise: every name and list of queues that has workflows in this final state, with the age of the workflow that
-- ended first. Sub-workflows are pruned with their root.
-- Parameters: state, now. Rows: (name, first 300 characters of the list of queues, age in microseconds).
-- Index: dibs_workflows_kept, two probes for each row, however many workflows there are: the next list of queues of the
-- name, else the next name. With (name, queues) > (:name, :queues), SQLite would read every workflow of a name and
-- list of queues to find the next.
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
-- Rows: history columns, permits. Programs that do not know workflows may have deleted some before.
DELETE FROM dibs_tasks
WHERE id IN (SELECT step.task_id FROM dibs_steps AS step JOIN dibs_tasks AS old ON old.id = step.task_id
             WHERE step.workflow_id IN
                      (SELECT id FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids)) UNION ALL
                       SELECT id FROM dibs_workflows WHERE root_id IN (SELECT value FROM json_each(:ids)))
             LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL, permits
