-- Promise: how many tasks there are by queue, type and state, the longest wait of a pending one, and how many of the
-- failed ones are not in the dead letter. Rows: (queue, type, state, count, age of the oldest pending, set aside).
SELECT queue, type, state, count(*), CASE state WHEN 'pending' THEN :now - min(ready_at) END,
       count(set_aside)
FROM dibs_tasks GROUP BY queue, type, state
