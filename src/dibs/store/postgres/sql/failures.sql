-- Promise: of the newest `reach` tasks of the dead letter the last ones, the newest first, each with the beginning of its error as JSON,
-- without the traceback: to parse all of them here would take ten times as long as to read them.
-- Parameters: reach, limit, queues. Rows: (id, type, beginning of the error, finished_at).
-- Index: dibs_tasks_dead, from its end; never further than `reach`, however rare the queues are.
SELECT task.id, task.type, {{error_head}}, task.finished_at
FROM (SELECT id, type, queue, error, finished_at FROM dibs_tasks
      WHERE state = 'failed' AND set_aside IS NULL ORDER BY finished_at DESC LIMIT {{reach}}) AS task
WHERE true {{conditions}} ORDER BY task.finished_at DESC LIMIT {{limit}}
