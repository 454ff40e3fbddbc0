-- Promise: a waiting task is cancelled, if it still is in the state that was seen.
-- Parameters: id, from_state, now. Rows: history columns; none if it moved.
UPDATE dibs_tasks SET state = 'cancelled', cancel_requested = 1, finished_at = :now
WHERE id = :id AND state = :from_state AND state IN ('scheduled', 'blocked', 'pending')
RETURNING id, 'cancelled', :from_state, state, NULL, token, NULL
