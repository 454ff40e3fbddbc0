-- Promise: the last failed tasks of the newest `reach`, the newest first, each with the beginning of its error as JSON,
-- without the traceback: to parse all of them here would take ten times as long as to read them.
-- Parameters: reach, limit, queues. Rows: (id, type, beginning of the error, finished_at).
-- Index: dibs_tasks_finished, from its end; never further than `reach`, however rare the queues are.
SELECT task.id, task.type, {{error_head}}, task.finished_at
FROM (SELECT id, type, queue, error, finished_at FROM dibs_tasks
      WHERE state = 'failed' ORDER BY finished_at DESC LIMIT {{reach}}) AS task
WHERE true {{conditions}} ORDER BY task.finished_at DESC LIMIT {{limit}}
