-- Promise: what happened after this entry, up to `limit` entries, counted by queue, event and states; the queue is NULL
-- where the task is gone. Parameters: after, limit.
-- Rows: (queue, event, from_state, to_state, count, highest entry).
-- Indexes: both primary keys. The queue is looked up for each entry: a join might begin with the tasks.
SELECT queue, event, from_state, to_state, count(*), max(id)
FROM (SELECT id, event, from_state, to_state, (SELECT queue FROM dibs_tasks WHERE id = past.task_id) AS queue
      FROM dibs_history AS past WHERE id > :after ORDER BY id LIMIT {{limit}}) AS moved
GROUP BY queue, event, from_state, to_state
