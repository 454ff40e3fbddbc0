-- What the holder of a claim writes: outcomes, renewals, progress, checkpoints.
-- Locks: those of the engine, see the file of the same theme there.

-- name: standing
-- Promise: the claim that holds each task now, and whether its cancellation was requested.
-- Parameters: ids. Rows: (id, token, worker_id, cancel_requested); none for a task that is not claimed.
-- Index: the primary key. Safe: a read; the fenced write checks again.
SELECT id, token, worker_id, cancel_requested FROM dibs_tasks
WHERE id {{in: ids}} AND {{unindexed: state}} = 'claimed'

-- name: checkpoints
-- Promise: what the attempts of this task have kept. Parameters: id. Rows: (name, value).
SELECT name, value FROM dibs_checkpoints WHERE task_id = :id ORDER BY at, name

-- name: outcome
-- Promise: what the task came to. Parameters: id. Rows: (result, error).
SELECT result, error FROM dibs_tasks WHERE id = :id

-- fragment: plain
-- Tasks that are no steps: whoever ends a step must hold its workflow. A fragment of the statements that end tasks.
AND workflow_id IS NULL
