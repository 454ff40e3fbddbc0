-- Promise: a page of the history of all tasks, in order, with the queue and type of each task that still is there.
-- Parameters: after, limit, queues. Rows: all columns of the history, queue, type.
-- Indexes: both primary keys. The queue is looked up for each entry: a join might begin with the tasks.
SELECT * FROM (
    SELECT past.id, past.task_id, past.event, past.from_state, past.to_state, past.worker_id, past.token, past.by,
           past.at, past.detail,
           (SELECT queue FROM dibs_tasks WHERE id = past.task_id) AS queue,
           (SELECT type FROM dibs_tasks WHERE id = past.task_id) AS type
    FROM dibs_history AS past
) AS task
WHERE task.id > %(after)s {{conditions}} ORDER BY task.id LIMIT {{limit}}
