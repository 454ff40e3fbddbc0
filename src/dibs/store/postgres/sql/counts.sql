-- Promise: how many tasks there are by queue, type and state, and the longest wait of a pending one.
-- Rows: (queue, type, state, count, age of the oldest pending).
WITH {{moment}}
SELECT queue, type, state, count(*),
       CASE state WHEN 'pending' THEN (SELECT now FROM moment) - min(ready_at) END
FROM dibs_tasks GROUP BY queue, type, state
