-- Promise: nobody claims from the queue from now on. Parameters: queue, by, now. Rows: none.
INSERT INTO dibs_queues (name, paused_at, paused_by) VALUES (:queue, :now, :by)
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(paused_at, excluded.paused_at), paused_by = excluded.paused_by
