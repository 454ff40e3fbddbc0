-- Retention rules, and the deletion of records past their retention.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: set_retention
-- Promise: the rule is stored; a rule with the same scope and name is changed to it. An equal rule changes nothing.
-- Parameters: records, scope, name, kept, by, now. Rows: (records) of what changed; none where nothing did.
-- Safe: two clients that set the same rule wait for each other at its row, and the second sees what the first stored.
{{with_moment}}
INSERT INTO dibs_retention AS rule (records, scope, name, kept, changed_at, changed_by)
VALUES (:records, :scope, :name, :kept, {{now}}, :by)
ON CONFLICT (records, scope, name) DO UPDATE
SET kept = excluded.kept, changed_at = excluded.changed_at, changed_by = excluded.changed_by
WHERE rule.kept {{differs_from}} excluded.kept
RETURNING records

-- name: remove_retention
-- Promise: no rule is set for this scope and name. Parameters: records, scope, name. Rows: (records) of what was
-- removed.
-- Safe: of two clients that remove the same rule, the second waits and finds nothing to remove.
DELETE FROM dibs_retention WHERE records = :records AND scope = :scope AND name = :name RETURNING records

-- name: record_retention_change
-- Promise: a change of a retention rule is recorded, with its author. Parameters: records, scope, name, kept, removed,
-- by, now. Rows: none. Safe: in the transaction of the change, after it: while the rule's row is locked.
{{with_moment}}
INSERT INTO dibs_retention_changes (at, by, records, scope, name, kept, removed)
VALUES ({{now}}, :by, :records, :scope, :name, :kept, :removed)

-- name: retention
-- Promise: every retention rule that is set. Rows: (records, scope, name, kept, changed_at, changed_by), in any order.
SELECT records, scope, name, kept, changed_at, changed_by FROM dibs_retention

-- name: retention_changes
-- Promise: the newest changes of retention rules, newest first. Parameters: limit.
-- Rows: (id, at, by, records, scope, name, kept, removed). Index: the primary key.
SELECT id, at, by, records, scope, name, kept, removed FROM dibs_retention_changes ORDER BY id DESC LIMIT {{limit}}

-- name: prune
-- Promise: up to `limit` tasks that have been in this final state for longer than `kept` are deleted.
-- For states whose tasks all have the same retention (see `prune_walked`). Steps are pruned with their workflow (see
-- `prune_steps`).
-- Parameters: state, kept, limit, now, by. Rows: history columns, permits. Index: dibs_tasks_finished.
-- Safe: rows that another client is retrying, or another prune is deleting, are skipped.
{{change}}
DELETE FROM dibs_tasks
WHERE id {{in_select:
    SELECT id FROM dibs_tasks {{indexed_by: dibs_tasks_finished}}
    WHERE state = :state AND finished_at <= {{now}} - :kept
      AND workflow_id IS NULL
    ORDER BY finished_at LIMIT {{limit}} {{skip_locked}}}}
RETURNING id, 'pruned', state, state, NULL, token, NULL, permits
{{note_change}}

-- name: walk_finished
-- Promise: when the last task of the next stretch of tasks in this final state finished: the task `span` places after
-- the first task that finished after `after`.
-- Parameters: state, after, kept (the shortest retention in the state), now. Words: span.
-- Rows: (finished_at); none where that task has not been finished for `kept`, or there are fewer tasks.
-- Index: dibs_tasks_finished, in its order. The upper bound is compared afterwards, because PostgreSQL expects few rows
-- between two bounds, and would read and sort all of them.
{{with_moment}}
SELECT finished_at
FROM (SELECT finished_at FROM dibs_tasks {{indexed_by: dibs_tasks_finished}}
      WHERE state = :state AND finished_at > :after
      ORDER BY finished_at LIMIT 1 OFFSET {{span}}) AS last
WHERE finished_at <= {{now}} - :kept

-- name: delete_checkpoints
-- Promise: the checkpoints of these tasks are deleted. Parameters: ids. Rows: none.
DELETE FROM dibs_checkpoints WHERE task_id {{in: ids}}

-- name: delete_steps
-- Promise: these tasks are not steps any more. Parameters: ids. Rows: none. `delete_edges` deletes their edges.
DELETE FROM dibs_steps WHERE task_id {{in: ids}}

-- name: delete_edges
-- Promise: the edges from and to these tasks are deleted. Parameters: ids. Rows: none.
DELETE FROM dibs_edges WHERE parent_id {{in: ids}} OR child_id {{in: ids}}

-- name: mark_pruned
-- Promise: these workflows cannot be retried, because some of their steps are deleted. Parameters: ids. Rows: none.
UPDATE dibs_workflows SET stopping = 'pruned' WHERE id {{in: ids}}

-- fragment: workflows_of_trees
-- The ids of the workflows in the trees whose roots are the parameter `ids`.
{{in_select: SELECT id FROM dibs_workflows WHERE id {{in: ids}} UNION ALL
             SELECT id FROM dibs_workflows WHERE root_id {{in: ids}}}}

-- name: delete_lost_steps
-- Promise: these trees have no steps any more, also where the tasks were deleted without their steps.
-- Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_steps WHERE workflow_id {{workflows_of_trees}}

-- name: delete_attempts
-- Promise: the recorded requests to finalize the workflows of these trees are deleted. Parameters: ids (of the roots).
-- Rows: none.
DELETE FROM dibs_finalization_attempts WHERE workflow_id {{workflows_of_trees}}

-- name: delete_workflows
-- Promise: these trees of workflows are deleted. Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_workflows WHERE id {{workflows_of_trees}}

-- name: prune_history
-- Promise: up to `limit` of the oldest entries of the history are deleted, if older than `kept`. Parameters: kept,
-- limit, now. Rows: (id). Index: the primary key; entries are appended in time order, so the oldest are at its
-- beginning.
-- Safe: rows that another prune is deleting are skipped.
{{with_moment}}
DELETE FROM dibs_history
WHERE id {{in_select: SELECT id FROM dibs_history ORDER BY id LIMIT {{limit}} {{skip_locked}}}} AND at <= {{now}} - :kept
RETURNING id

-- name: note_pruned
-- Promise: the newest pruned entry of the history is recorded, in the transaction that prunes it. Parameters: last. Rows: none.
-- Safe: a second prune waits for the first, then keeps the higher id.
INSERT INTO dibs_history_pruned AS known (id, last) VALUES (1, :last)
ON CONFLICT (id) DO UPDATE SET last = excluded.last WHERE known.last < excluded.last

-- name: prune_attempts
-- Promise: up to `limit` recorded requests to finalize that are older than `kept` are deleted, oldest first.
-- Parameters: kept, limit, now. Rows: (id). Safe: rows that another prune is deleting are skipped.
{{with_moment}}
DELETE FROM dibs_finalization_attempts
WHERE id {{in_select: SELECT id FROM dibs_finalization_attempts ORDER BY id LIMIT {{limit}} {{skip_locked}}}}
  AND at <= {{now}} - :kept
RETURNING id
