-- Promise: up to `limit` steps that have ended without their workflow being told. Parameters: limit. Rows: (task_id).
-- Index: dibs_steps_open, so that it costs what is open, not what has ever ended. Only programs that do not know workflows
-- leave such steps behind.
SELECT step.task_id FROM dibs_steps AS step INDEXED BY dibs_steps_open JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.passed IS NULL AND +task.state IN ('completed', 'failed', 'cancelled')
LIMIT {{limit}}
