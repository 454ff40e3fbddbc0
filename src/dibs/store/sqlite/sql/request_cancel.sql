-- Promise: the worker of a running task learns at its next renewal that it should stop.
-- Parameters: id, from_state. Rows: history columns; none if it is no longer running.
UPDATE dibs_tasks SET cancel_requested = 1
WHERE id = :id AND state = 'claimed' AND state = :from_state AND NOT cancel_requested
RETURNING id, 'cancel_requested', 'claimed', state, worker_id, token, NULL
