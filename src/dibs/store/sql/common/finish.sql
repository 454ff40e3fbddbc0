-- Writes of the holder of a claim: outcomes, renewals, progress, checkpoints.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- name: claim_status
-- Promise: the claim that holds each task now, and whether its cancellation was requested.
-- Parameters: ids. Rows: (id, token, worker_id, cancel_requested); none for a task that is not claimed.
-- Index: the primary key. Safe: a read; the fenced write checks again.
SELECT id, token, worker_id, cancel_requested FROM dibs_tasks
WHERE id {{in: ids}} AND {{unindexed: state}} = 'claimed'

-- name: checkpoints
-- Promise: the checkpoints of this task. Parameters: id. Rows: (name, value).
SELECT name, value FROM dibs_checkpoints WHERE task_id = :id ORDER BY at, name

-- name: outcome
-- Promise: the result and the error of the task. Parameters: id. Rows: (result, error).
SELECT result, error FROM dibs_tasks WHERE id = :id

-- fragment: not_a_step
-- A condition of the statements that end tasks: the task is not a step. A transaction that ends a step must lock the
-- workflow.
AND workflow_id IS NULL

-- fragment: backoff
-- The microseconds before the next attempt, without jitter: backoff_base, doubled for every attempt that ended before
-- this one, at most backoff_cap. It is `Backoff.delay` of dibs/model/retry.py in SQL: base, cap and attempts are
-- columns of the row that the statement changes, and reading them first would cost a statement for each failure.
-- The cap is shifted to the right, because base * 2^attempts may exceed 64 bits; both engines shift integers alike up
-- to 63 places. The number of doublings is limited as in Python (MAX_DOUBLINGS).
(CASE WHEN backoff_base > backoff_cap >> {{doublings}} THEN backoff_cap ELSE backoff_base << {{doublings}} END)

-- fragment: doublings
-- How often `backoff` doubles: once for every attempt that ended.
(CASE WHEN attempts < 40 THEN attempts ELSE 40 END)
