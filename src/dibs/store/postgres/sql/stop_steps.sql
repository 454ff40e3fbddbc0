-- Promise: the workers of this workflow's running steps learn at their next renewal that they should stop.
-- Parameters: id, now. Rows: history columns.
-- Safe: the rows are locked in the order of their ids, as those are who renew and finish them: nobody waits in a circle.
WITH {{moment}},
running AS MATERIALIZED (
    SELECT task.id FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
    WHERE step.workflow_id = %(id)s AND step.passed IS NULL AND step.kind <> 'workflow'
      AND {{still: 'claimed'}} AND NOT task.cancel_requested
    ORDER BY task.id FOR NO KEY UPDATE OF task
),
changed AS (
    UPDATE dibs_tasks AS task SET cancel_requested = true
    FROM running
    WHERE task.id = running.id
    RETURNING task.id AS task_id, 'cancel_requested' AS event, 'claimed' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
