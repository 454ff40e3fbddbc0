-- Promise: each of these steps, which stand for sub-workflows, is claimed by its workflow, for as long as that runs.
-- Parameters: ids, now. Rows: history columns, the sub-workflow's id. They are pending in this transaction alone, so that
-- no worker can claim them.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = 'workflow-' || sub.id, incarnation = NULL, claimed_at = :now,
    lease_until = NULL, ahead = 0, request = NULL
FROM (SELECT id, step_of FROM dibs_workflows WHERE step_of IN (SELECT value FROM json_each(:ids))) AS sub
WHERE dibs_tasks.id = sub.step_of AND +dibs_tasks.state IN ('pending', 'scheduled')
RETURNING id, 'claimed', 'pending', state, worker_id, token, NULL,
    (SELECT id FROM dibs_workflows WHERE step_of = dibs_tasks.id)
