-- Promise: the queues that have been paused or resumed. Rows: (name, paused_at).
SELECT name, paused_at FROM dibs_queues
