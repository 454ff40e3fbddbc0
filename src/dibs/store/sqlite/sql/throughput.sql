-- Promise: how many tasks reached each final state within the window. Parameters: window, queues, now.
-- Rows: (state, count). Index: dibs_tasks_finished.
SELECT state, count(*) FROM dibs_tasks INDEXED BY dibs_tasks_finished
WHERE state IN ('completed', 'failed', 'cancelled') AND finished_at > :now - :window {{conditions}}
GROUP BY state
