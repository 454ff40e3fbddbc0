-- Promise: how many tasks reached each final state within the window. Parameters: window, queues, now.
-- Rows: (state, count). Index: dibs_tasks_finished.
WITH {{moment}}
SELECT state, count(*) FROM dibs_tasks AS task
WHERE state IN ('completed', 'failed', 'cancelled') AND finished_at > (SELECT now FROM moment) - %(window)s
  {{conditions}}
GROUP BY state
