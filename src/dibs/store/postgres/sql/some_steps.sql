-- Promise: these steps as they are now, without what they said. Parameters: ids.
-- Rows: (task_id, name, kind, type, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id, claimed_at,
-- finished_at, the sub-workflow's id, how many steps it has, how many of them have ended). Index: the primary keys.
SELECT step.task_id, step.name, step.kind, task.type, task.queue, task.state, task.attempts, task.max_attempts,
       step.waits, step.on_failure, step.passed, task.worker_id, task.claimed_at, task.finished_at, sub.id,
       sub.steps, sub.ended
FROM dibs_steps AS step
JOIN dibs_tasks AS task ON task.id = step.task_id
LEFT JOIN dibs_workflows AS sub ON sub.step_of = step.task_id
WHERE step.task_id = ANY(%(ids)s::bigint[])
