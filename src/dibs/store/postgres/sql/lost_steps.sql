-- Promise: up to `limit` steps whose lease ran out and that end with it: their last attempt is lost, or they were asked to
-- stop. Parameters: limit, now. Rows: (id). Index: dibs_tasks_leases. A look: they are recovered by id, when their
-- workflows are held.
WITH {{moment}}
SELECT id FROM dibs_tasks
WHERE state = 'claimed' AND lease_until <= (SELECT now FROM moment) AND workflow_id IS NOT NULL
  AND (cancel_requested OR (attempts_left <= 1 AND NOT ahead))
ORDER BY lease_until LIMIT {{limit}}
