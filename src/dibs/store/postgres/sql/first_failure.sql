-- Promise: the step that failed first in this workflow. Parameters: id. Rows: (name, task_id, state, error); at most one.
SELECT step.name, task.id, task.state, task.error
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = %(id)s AND step.kind <> 'finalizer' AND NOT step.passed AND task.state IN ('failed', 'cancelled')
ORDER BY task.state = 'failed' DESC, task.finished_at, task.id
LIMIT 1
