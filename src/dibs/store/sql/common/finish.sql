-- What the holder of a claim writes: outcomes, renewals, progress, checkpoints.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: claim_status
-- Promise: the claim that holds each task now, and whether its cancellation was requested.
-- Parameters: ids. Rows: (id, token, worker_id, cancel_requested); none for a task that is not claimed.
-- Index: the primary key. Safe: a read; the fenced write checks again.
SELECT id, token, worker_id, cancel_requested FROM dibs_tasks
WHERE id {{in: ids}} AND {{unindexed: state}} = 'claimed'

-- name: checkpoints
-- Promise: what the attempts of this task have kept. Parameters: id. Rows: (name, value).
SELECT name, value FROM dibs_checkpoints WHERE task_id = :id ORDER BY at, name

-- name: outcome
-- Promise: the result and the error of the task. Parameters: id. Rows: (result, error).
SELECT result, error FROM dibs_tasks WHERE id = :id

-- fragment: not_a_step
-- A condition of the statements that end tasks: the task is not a step. A transaction that ends a step must lock the
-- workflow.
AND workflow_id IS NULL
