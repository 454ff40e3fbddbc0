-- Promise: the workers of this workflow's running steps learn at their next renewal that they should stop.
-- Parameters: id, now. Rows: history columns.
UPDATE dibs_tasks SET cancel_requested = 1
WHERE id IN (SELECT task_id FROM dibs_steps WHERE workflow_id = :id AND passed IS NULL AND kind <> 'workflow')
  AND +state = 'claimed' AND NOT cancel_requested
RETURNING id, 'cancel_requested', 'claimed', state, worker_id, token, NULL
