-- Promise: the workers of this workflow's running steps learn at their next renewal that they should stop.
-- Parameters: id, now. Rows: history columns.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET cancel_requested = true
    FROM dibs_steps AS step
    WHERE step.workflow_id = %(id)s AND step.passed IS NULL AND step.kind <> 'workflow' AND task.id = step.task_id
      AND {{still: 'claimed'}} AND NOT task.cancel_requested
    RETURNING task.id AS task_id, 'cancel_requested' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
