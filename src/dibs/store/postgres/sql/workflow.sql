-- Workflows: insert steps, advance, stop and reopen workflows.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: add_steps
-- Promise: these tasks are steps. Parameters: of each task_id, workflow_id, name, kind, on_failure, waits, delay,
-- expires_in.
INSERT INTO dibs_steps (task_id, workflow_id, name, kind, on_failure, waits, delay, expires_in)
SELECT task_id, workflow_id, name, kind, on_failure, waits, delay, expires_in
FROM json_to_recordset(:items::json)
    AS step (task_id bigint, workflow_id bigint, name text, kind text, on_failure text, waits int, delay bigint,
             expires_in bigint)

-- name: add_edges
-- Promise: each child waits for its parent. Parameters: of each parent_id, child_id. Rows: none.
INSERT INTO dibs_edges (parent_id, child_id)
SELECT parent_id, child_id FROM json_to_recordset(:items::json) AS edge (parent_id bigint, child_id bigint)

-- name: add_waits
-- Promise: each step waits for `more` further parents. Parameters: of each task_id, more. Rows: none.
UPDATE dibs_steps AS step SET waits = step.waits + added.more
FROM json_to_recordset(:items::json) AS added (task_id bigint, more int)
WHERE step.task_id = added.task_id

-- name: lock_workflows
-- Promise: no other transaction changes the trees of workflows with these roots before this one ends.
-- Parameters: ids, sorted. Rows: (id).
-- Safe: a transaction that ends a step, adds one, or stops, retries or ends a workflow locks the row of the root first,
-- before it touches any task; roots are locked in the order of their ids. So two such transactions wait for each other
-- in one direction, and what each reads after this statement is what the other has committed: it misses no end of a
-- parent and no new edge. A separate statement: a statement that waits for the lock would continue with its earlier
-- snapshot.
SELECT id FROM dibs_workflows WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: decide_steps
-- Promise: whether a step has passed is decided, once, for each of these steps that has ended: a step passes if it was
-- completed, or if its failure is ignored and the step was not given up. Parameters: ids, given_up.
-- Rows: (task_id, workflow_id, kind, on_failure, waits, passed, state).
-- Safe: `passed IS NULL` prevents counting a step twice, and the workflow is locked.
UPDATE dibs_steps AS step
SET passed = NOT :given_up AND (task.state = 'completed' OR (step.on_failure = 'ignore' AND step.kind <> 'finalizer'))
FROM dibs_tasks AS task
WHERE step.task_id = ANY(:ids::bigint[]) AND step.passed IS NULL
  AND task.id = step.task_id AND {{unindexed: task.state}} IN ('completed', 'failed', 'cancelled')
RETURNING step.task_id, step.workflow_id, step.kind, step.on_failure, step.waits, step.passed, task.state

-- name: open_children
-- Promise: the children of these steps wait for fewer parents, by the number of these steps. Parameters: ids (of steps
-- that have passed).
-- Rows: (task_id, workflow_id, kind, waits, passed) of the children. The cost is that of the edges, however large the
-- graph: a join would be planned for a two-hundredth of a graph that no ANALYZE has seen yet, and so read all its
-- steps.
-- Index: dibs_edges_pkey, dibs_steps_pkey. Children that were given up count too: if their workflow is retried, they
-- must not wait for parents that have passed.
WITH done AS MATERIALIZED (
    SELECT child_id, count(*) AS parents FROM dibs_edges WHERE parent_id = ANY(:ids::bigint[]) GROUP BY child_id
)
UPDATE dibs_steps AS step
SET waits = step.waits - ((SELECT jsonb_object_agg(child_id, parents) FROM done) ->> step.task_id::text)::integer
WHERE step.task_id = ANY(ARRAY(SELECT child_id FROM done))
RETURNING step.task_id, step.workflow_id, step.kind, step.waits, step.passed

-- name: ready_steps
-- Promise: these blocked steps may run: they are pending, or scheduled where they have a delay or a time of their own.
-- The time within which a step must start (`expires_in`) begins now.
-- Parameters: ids, now. Rows: history columns.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN coalesce(moment.now + step.delay, task.run_at) > moment.now THEN 'scheduled' ELSE 'pending' END,
        run_at = coalesce(moment.now + step.delay, greatest(task.run_at, moment.now)), ready_at = moment.now,
        expires_at = coalesce(moment.now + step.expires_in, task.expires_at),
        random_key = {{random_place}}, weighted_key = {{weighted_place}}
    FROM dibs_steps AS step, moment
    WHERE task.id = ANY(:ids::bigint[]) AND step.task_id = task.id AND {{unindexed: state}} = 'blocked'
    RETURNING task.id AS task_id, 'promoted' AS event, 'blocked' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: start_sub_workflow_steps
-- Promise: each of these steps, which represent sub-workflows, is claimed by its sub-workflow while that runs.
-- Parameters: ids, now. Rows: history columns, the sub-workflow's id. They are pending in this transaction alone, so
-- that no worker can claim them.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = 'workflow-' || sub.id, incarnation = NULL,
        claimed_at = moment.now, lease_until = NULL, ahead = false, request = NULL
    FROM dibs_workflows AS sub, moment
    WHERE task.id = ANY(:ids::bigint[]) AND sub.step_of = task.id
      AND {{unindexed: task.state}} IN ('pending', 'scheduled')
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, sub.id AS workflow_id
),
{{noted}}
SELECT * FROM changed

-- name: count_steps
-- Promise: the counters of each workflow grow by these numbers. A running workflow without active steps waits for its
-- finalization from now on; a workflow with active steps does not, nor does a sub-workflow that has not begun.
-- Parameters: of each id, steps, active, ended, failures; now. Rows: (id, due_at); due_at is NULL where no finalization
-- is due.
-- Safe: the root is locked, so of the steps that end at the same moment one is the last, and its transaction sees that.
WITH {{moment}}
UPDATE dibs_workflows AS workflow
SET steps = workflow.steps + more.steps, active = workflow.active + more.active, ended = workflow.ended + more.ended,
    failures = workflow.failures + more.failures,
    due_at = CASE WHEN workflow.active + more.active = 0 AND workflow.state = 'running'
                   AND (workflow.step_of IS NULL OR EXISTS (
                       SELECT FROM dibs_tasks AS gate WHERE gate.id = workflow.step_of AND {{unindexed: gate.state}} = 'claimed'))
                  THEN moment.now END
FROM json_to_recordset(:items::json) AS more (id bigint, steps int, active int, ended int, failures int), moment
WHERE workflow.id = more.id
RETURNING workflow.id, workflow.due_at

-- name: stop_steps
-- Promise: the workers of this workflow's running steps learn at their next renewal that they should stop.
-- Parameters: id, now. Rows: history columns.
-- Safe: the rows are locked in the order of their ids, as in the statements that renew and finish tasks: no deadlock.
WITH {{moment}},
running AS MATERIALIZED (
    SELECT task.id FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
    WHERE step.workflow_id = :id AND step.passed IS NULL AND step.kind <> 'workflow'
      AND {{unindexed: state}} = 'claimed' AND NOT task.cancel_requested
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
