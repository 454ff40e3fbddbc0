-- Promise: the queues nobody may claim from. Rows: (name).
SELECT name FROM dibs_queues WHERE paused_at IS NOT NULL
