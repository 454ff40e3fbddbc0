-- Promise: a page of the history of all tasks, in order, with the queue and type of each task that still is there.
-- Parameters: after, limit, queues. Rows: all columns of the history, queue, type.
-- Indexes: both primary keys. The queue is looked up for each entry: a join might begin with the tasks.
SELECT * FROM (
    SELECT id, task_id, event, from_state, to_state, worker_id, token, by, at, detail,
           (SELECT queue FROM dibs_tasks WHERE id = task_id) AS queue,
           (SELECT type FROM dibs_tasks WHERE id = task_id) AS type
    FROM dibs_history
)
WHERE id > :after {{conditions}} ORDER BY id LIMIT {{limit}}
