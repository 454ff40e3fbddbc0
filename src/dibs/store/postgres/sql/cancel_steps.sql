-- Promise: the workflow's steps that wait in this state are cancelled. Parameters: id, from_state, now.
-- Rows: history columns. Index: dibs_steps_open.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET state = 'cancelled', finished_at = moment.now
    FROM dibs_steps AS step, moment
    WHERE step.workflow_id = %(id)s AND step.passed IS NULL AND task.id = step.task_id AND {{still: %(from_state)s}}
    RETURNING task.id AS task_id, 'cancelled' AS event, %(from_state)s::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, '{"by":"workflow"}' AS detail
),
{{noted}}
SELECT * FROM changed
