-- Promise: the step that stands for a sub-workflow ends as its workflow did. Parameters: id, state, result, error, now.
-- Rows: history columns. Safe: the tree is held, and a workflow ends once.
UPDATE dibs_tasks
SET state = :state, attempts = attempts + 1, result = :result, error = :error, finished_at = :now
WHERE id = :id AND state = 'claimed'
RETURNING id, state, 'claimed', state, worker_id, token, error
