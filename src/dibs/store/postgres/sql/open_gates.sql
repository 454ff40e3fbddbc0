-- Promise: each of these steps, which stand for sub-workflows, is claimed by its workflow, for as long as that runs.
-- Parameters: ids, now. Rows: history columns, the sub-workflow's id. They are pending in this transaction alone, so that
-- no worker can claim them.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = 'workflow-' || sub.id, incarnation = NULL,
        claimed_at = moment.now, lease_until = NULL, ahead = false, request = NULL
    FROM dibs_workflows AS sub, moment
    WHERE task.id = ANY(%(ids)s::bigint[]) AND sub.step_of = task.id
      AND (task.state || '') IN ('pending', 'scheduled')
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, sub.id AS workflow_id
),
{{noted}}
SELECT * FROM changed
