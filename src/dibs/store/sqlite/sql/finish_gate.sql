-- Promise: the step that stands for a sub-workflow ends as its workflow did; also if that was cancelled before it began.
-- Parameters: id, from_state (claimed or blocked), state, result, error, now. Rows: history columns.
-- Safe: the tree is held, and a workflow ends once.
UPDATE dibs_tasks
SET state = :state, attempts = attempts + (:from_state = 'claimed'), result = :result, error = :error, finished_at = :now
WHERE id = :id AND +state = :from_state
RETURNING id, state, :from_state, state, worker_id, token, error
