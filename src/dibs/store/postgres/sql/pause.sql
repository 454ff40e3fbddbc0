-- Promise: nobody claims from the queue from now on. Parameters: queue, by, now. Rows: none.
WITH {{moment}}
INSERT INTO dibs_queues (name, paused_at, paused_by) SELECT %(queue)s, moment.now, %(by)s FROM moment
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce(dibs_queues.paused_at, excluded.paused_at), paused_by = excluded.paused_by
