-- Promise: these blocked steps may run: pending, or scheduled where they have a delay or a time of their own.
-- Parameters: ids, now. Rows: history columns.
UPDATE dibs_tasks
SET state = CASE WHEN coalesce(:now + step.delay, dibs_tasks.run_at) > :now THEN 'scheduled' ELSE 'pending' END,
    run_at = coalesce(:now + step.delay, max(dibs_tasks.run_at, :now)), ready_at = :now,
    {{fresh_keys: dibs_tasks.attempts_left}}
FROM (SELECT task_id, delay FROM dibs_steps WHERE task_id IN (SELECT value FROM json_each(:ids))) AS step
WHERE dibs_tasks.id = step.task_id AND +dibs_tasks.state = 'blocked'
RETURNING id, 'promoted', 'blocked', state, NULL, token, NULL
