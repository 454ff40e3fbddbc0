-- Promise: the queue may be claimed from again. Parameters: queue. Rows: none.
UPDATE dibs_queues SET paused_at = NULL, paused_by = NULL WHERE name = %(queue)s
