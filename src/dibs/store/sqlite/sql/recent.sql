-- Promise: how long the last completed tasks waited and ran, among the newest `reach` of all queues.
-- Parameters: reach, limit, queues. Rows: (waited, ran).
-- Index: dibs_tasks_finished, from its end; never further than `reach`, however rare the queues are.
SELECT claimed_at - ready_at, finished_at - claimed_at
FROM (SELECT queue, ready_at, claimed_at, finished_at FROM dibs_tasks INDEXED BY dibs_tasks_finished
      WHERE state IN ('completed', 'failed', 'cancelled') AND state = 'completed'
      ORDER BY finished_at DESC LIMIT {{reach}})
WHERE true {{conditions}} LIMIT {{limit}}
