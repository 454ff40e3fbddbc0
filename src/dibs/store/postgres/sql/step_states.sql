-- Promise: how the workflow's steps stand, up to the last one that is shown. Parameters: id, last.
-- Rows: (state, on_failure, passed, ids as JSON): a few rows for thousands of steps, which takes half the time.
-- Index: dibs_steps_names, and the primary key of the tasks, one by one (OFFSET 0; see outline.sql).
SELECT task.state, step.on_failure, step.passed, json_agg(step.task_id)::text
FROM dibs_steps AS step
CROSS JOIN LATERAL (SELECT state FROM dibs_tasks WHERE id = step.task_id OFFSET 0) AS task
WHERE step.workflow_id = %(id)s AND step.task_id <= %(last)s
GROUP BY task.state, step.on_failure, step.passed
