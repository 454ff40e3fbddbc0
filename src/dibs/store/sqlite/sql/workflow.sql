-- Workflows: insert steps, advance, stop and reopen workflows.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: add_steps
-- Promise: these tasks are steps. Parameters: of each task_id, workflow_id, name, kind, on_failure, waits, delay,
-- expires_in.
INSERT INTO dibs_steps (task_id, workflow_id, name, kind, on_failure, waits, delay, expires_in)
VALUES (:task_id, :workflow_id, :name, :kind, :on_failure, :waits, :delay, :expires_in)

-- name: add_edges
-- Promise: each child waits for its parent. Parameters: of each parent_id, child_id. Rows: none.
INSERT INTO dibs_edges (parent_id, child_id) VALUES (:parent_id, :child_id)

-- name: add_waits
-- Promise: each step waits for `more` further parents. Parameters: of each task_id, more. Rows: none.
UPDATE dibs_steps SET waits = waits + :more WHERE task_id = :task_id

-- name: decide_steps
-- Promise: whether a step has passed is decided, once, for each of these steps that has ended: a step passes if it was
-- completed, or if its failure is ignored and the step was not given up. Parameters: ids, given_up.
-- Rows: (task_id, workflow_id, kind, on_failure, waits, passed, state).
-- Safe: `passed IS NULL` prevents counting a step twice, and the workflow is locked.
UPDATE dibs_steps
SET passed = NOT :given_up AND (task.state = 'completed' OR (dibs_steps.on_failure = 'ignore' AND dibs_steps.kind <> 'finalizer'))
FROM (SELECT id, state FROM dibs_tasks
      WHERE id IN (SELECT value FROM json_each(:ids)) AND +state IN ('completed', 'failed', 'cancelled')) AS task
WHERE task_id = task.id AND passed IS NULL
RETURNING task_id, workflow_id, kind, on_failure, waits, passed, (SELECT state FROM dibs_tasks WHERE id = task_id)

-- name: open_children
-- Promise: the children of these steps wait for fewer parents, by the number of these steps. Parameters: ids (of steps
-- that have passed).
-- Rows: (task_id, workflow_id, kind, waits, passed) of the children. The cost is that of the edges, however large the
-- graph. Children that were given up count too: if their workflow is retried, they must not wait for parents that have
-- passed.
UPDATE dibs_steps
SET waits = waits - done.parents
FROM (SELECT child_id, count(*) AS parents FROM dibs_edges WHERE parent_id IN (SELECT value FROM json_each(:ids))
      GROUP BY child_id) AS done
WHERE task_id = done.child_id
RETURNING task_id, workflow_id, kind, waits, passed

-- name: ready_steps
-- Promise: these blocked steps may run: they are pending, or scheduled where they have a delay or a time of their own.
-- The time within which a step must start (`expires_in`) begins now.
-- Parameters: ids, now. Rows: history columns.
UPDATE dibs_tasks
SET state = CASE WHEN coalesce(:now + step.delay, dibs_tasks.run_at) > :now THEN 'scheduled' ELSE 'pending' END,
    run_at = coalesce(:now + step.delay, max(dibs_tasks.run_at, :now)), ready_at = :now,
    expires_at = coalesce(:now + step.expires_in, dibs_tasks.expires_at),
    {{fresh_keys}}
FROM (SELECT task_id, delay, expires_in FROM dibs_steps WHERE task_id IN (SELECT value FROM json_each(:ids))) AS step
WHERE dibs_tasks.id = step.task_id AND +dibs_tasks.state = 'blocked'
RETURNING id, 'promoted', 'blocked', state, NULL, token, NULL

-- name: start_sub_workflow_steps
-- Promise: each of these steps, which represent sub-workflows, is claimed by its sub-workflow while that runs.
-- Parameters: ids, now. Rows: history columns, the sub-workflow's id. They are pending in this transaction alone, so
-- that no worker can claim them.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = 'workflow-' || sub.id, incarnation = NULL, claimed_at = :now,
    lease_until = NULL, ahead = 0, request = NULL
FROM (SELECT id, step_of FROM dibs_workflows WHERE step_of IN (SELECT value FROM json_each(:ids))) AS sub
WHERE dibs_tasks.id = sub.step_of AND +dibs_tasks.state IN ('pending', 'scheduled')
RETURNING id, 'claimed', 'pending', state, worker_id, token, NULL,
    (SELECT id FROM dibs_workflows WHERE step_of = dibs_tasks.id)

-- name: count_steps
-- Promise: the counters of each workflow grow by these numbers. A running workflow without active steps waits for its
-- finalization from now on; a workflow with active steps does not, nor does a sub-workflow that has not begun.
-- Parameters: of each id, steps, active, ended, failures; now. Rows: (id, due_at); due_at is NULL where no finalization
-- is due.
-- Safe: the root is locked, so of the steps that end at the same moment one is the last, and its transaction sees that.
UPDATE dibs_workflows
SET steps = steps + :steps, active = active + :active, ended = ended + :ended, failures = failures + :failures,
    due_at = CASE WHEN active + :active = 0 AND state = 'running'
                   AND (step_of IS NULL OR EXISTS (
                       SELECT 1 FROM dibs_tasks AS gate WHERE gate.id = step_of AND +gate.state = 'claimed'))
                  THEN :now END
WHERE id = :id
RETURNING id, due_at

-- name: stop_steps
-- Promise: the workers of this workflow's running steps learn at their next renewal that they should stop.
-- Parameters: id, now. Rows: history columns.
UPDATE dibs_tasks SET cancel_requested = 1
WHERE id IN (SELECT task_id FROM dibs_steps WHERE workflow_id = :id AND passed IS NULL AND kind <> 'workflow')
  AND +state = 'claimed' AND NOT cancel_requested
RETURNING id, 'cancel_requested', 'claimed', state, worker_id, token, NULL
