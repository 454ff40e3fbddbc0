-- A task that waits has no worker and no time of its claim. Older code left both in a task that went back to the queue;
-- the history has them.
-- compatible: 10

UPDATE dibs_tasks SET worker_id = NULL, claimed_at = NULL
WHERE state IN ('pending', 'scheduled', 'blocked') AND (worker_id IS NOT NULL OR claimed_at IS NOT NULL);
