-- Workflows: their steps, how they advance, stop and run again.
-- Locks: the roots of workflow trees in the order of their ids (hold_workflows), then tasks in the order of their ids (in_turn,
-- hold_tasks); a statement that takes what it finds passes over rows that are locked (SKIP LOCKED).

-- name: start_workflow
-- Promise: a new workflow, unless a workflow started in the same queues has its key (no row then). Its steps follow
-- in the same transaction.
-- Parameters: root_id, step_of, name, key, key_content, on_failure, queues, allowed, deadline, now. Rows: (id).
-- Index: dibs_workflows_key decides which workflow owns a key. The deadline of a sub-workflow is set when the
-- sub-workflow begins (see `begin_workflows`).
WITH {{moment}}
INSERT INTO dibs_workflows (root_id, step_of, name, key, key_content, key_queues, on_failure, queues, created_at,
                            allowed, deadline)
SELECT :root_id::bigint, :step_of::bigint, :name::text, :key::text, :key_content::text,
       CASE WHEN :key::text IS NOT NULL THEN :queues::text END,
       :on_failure::text, :queues::text, moment.now, :allowed::bigint,
       CASE WHEN :step_of::bigint IS NULL THEN coalesce(:deadline::bigint, moment.now + :allowed::bigint)
            ELSE :deadline::bigint END
FROM moment
ON CONFLICT (key, key_queues) WHERE key IS NOT NULL DO NOTHING
RETURNING id

-- name: add_steps
-- Promise: these tasks are steps. Parameters: of each task_id, workflow_id, name, kind, on_failure, waits, delay.
INSERT INTO dibs_steps (task_id, workflow_id, name, kind, on_failure, waits, delay)
SELECT task_id, workflow_id, name, kind, on_failure, waits, delay
FROM json_to_recordset(:said::json)
    AS step (task_id bigint, workflow_id bigint, name text, kind text, on_failure text, waits int, delay bigint)

-- name: add_edges
-- Promise: each child waits for its parent. Parameters: of each parent_id, child_id. Rows: none.
INSERT INTO dibs_edges (parent_id, child_id)
SELECT parent_id, child_id FROM json_to_recordset(:said::json) AS edge (parent_id bigint, child_id bigint)

-- name: add_waits
-- Promise: each step waits for `more` further parents. Parameters: of each task_id, more. Rows: none.
UPDATE dibs_steps AS step SET waits = step.waits + added.more
FROM json_to_recordset(:said::json) AS added (task_id bigint, more int)
WHERE step.task_id = added.task_id

-- name: find_steps
-- Promise: those steps of the workflow that have one of these names. Parameters: id, keys (the names).
-- Rows: (name, task_id, passed, queue). Index: dibs_steps_names.
SELECT step.name, step.task_id, step.passed, task.queue
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.name = ANY(:keys::text[])

-- name: hold_workflows
-- Promise: nobody else changes the trees of workflows with these roots before this transaction ends.
-- Parameters: ids, sorted. Rows: (id).
-- Safe: whoever ends a step, adds one, stops, retries or ends a workflow holds the root's row first, before it touches
-- any task; roots are held in the order of their ids. So two of them wait for each other one way round, and what each
-- reads after this statement is what the other has committed: no parent's end, no new edge is overlooked. A statement of
-- its own: one that had to wait for the lock would go on with what it saw before.
SELECT id FROM dibs_workflows WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: steps_among
-- Promise: which of these tasks are steps, and in whose tree. Parameters: ids. Rows: (task_id, root).
SELECT task.id, coalesce(workflow.root_id, workflow.id)
FROM dibs_tasks AS task JOIN dibs_workflows AS workflow ON workflow.id = task.workflow_id
WHERE task.id = ANY(:ids::bigint[])

-- name: roots_of
-- Promise: the roots of the trees that these workflows belong to. Parameters: ids. Rows: (id, root).
SELECT id, coalesce(root_id, id) FROM dibs_workflows WHERE id = ANY(:ids::bigint[])

-- name: step
-- Promise: how these tasks stand as steps. Parameters: ids.
-- Rows: (task_id, workflow_id, name, kind, passed, the workflow's state, stopping, on_failure, root).
SELECT step.task_id, step.workflow_id, step.name, step.kind, step.passed, workflow.state, workflow.stopping,
       workflow.on_failure, coalesce(workflow.root_id, workflow.id)
FROM dibs_steps AS step JOIN dibs_workflows AS workflow ON workflow.id = step.workflow_id
WHERE step.task_id = ANY(:ids::bigint[])

-- name: descendants
-- Promise: whether one of these steps waits for the step `id`, directly or through others. Parameters: ids, id.
-- Rows: (id); none if none does. Index: dibs_edges_child. The cost is that of the edges above them, up to what has passed.
WITH RECURSIVE above (id) AS (
    SELECT unnest(:ids::bigint[])
    UNION
    SELECT edge.parent_id FROM above JOIN dibs_edges AS edge ON edge.child_id = above.id
    JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id AND parent.passed IS NOT TRUE
)
SELECT id FROM above WHERE id = :id LIMIT 1

-- name: settle_steps
-- Promise: of these steps those that have ended are settled, each once: passed, if it was completed or its failure is
-- ignored and nothing was given up. Parameters: ids, given_up.
-- Rows: (task_id, workflow_id, kind, on_failure, waits, passed, state).
-- Safe: `passed IS NULL` lets nobody count a step twice, and the workflow is held.
UPDATE dibs_steps AS step
SET passed = NOT :given_up AND (task.state = 'completed' OR (step.on_failure = 'ignore' AND step.kind <> 'finalizer'))
FROM dibs_tasks AS task
WHERE step.task_id = ANY(:ids::bigint[]) AND step.passed IS NULL
  AND task.id = step.task_id AND (task.state || '') IN ('completed', 'failed', 'cancelled')
RETURNING step.task_id, step.workflow_id, step.kind, step.on_failure, step.waits, step.passed, task.state

-- name: ignore_failures
-- Promise: these failed steps are no dead letters: their workflows went on without them. Parameters: ids, now, by.
-- Rows: history columns. Index: the primary key.
-- Safe: the workflow is held, and `settle_steps` has settled each of these steps once, in the same transaction.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET set_aside = 'ignored'
    WHERE task.id = ANY(:ids::bigint[]) AND {{still: 'failed'}}
    RETURNING task.id AS task_id, 'ignored' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: open_children
-- Promise: the children of these steps wait for that many parents less. Parameters: ids (of steps that have passed).
-- Rows: (task_id, workflow_id, kind, waits, passed) of the children. The cost is that of the edges, however large the graph:
-- a join would be planned for a two-hundredth of a graph that no ANALYZE has seen yet, and so read all its steps.
-- Index: dibs_edges_pkey, dibs_steps_pkey.
-- Also of those that were given up: if their workflow is retried, they must not wait for what is done.
WITH done AS MATERIALIZED (
    SELECT child_id, count(*) AS parents FROM dibs_edges WHERE parent_id = ANY(:ids::bigint[]) GROUP BY child_id
)
UPDATE dibs_steps AS step
SET waits = step.waits - ((SELECT jsonb_object_agg(child_id, parents) FROM done) ->> step.task_id::text)::integer
WHERE step.task_id = ANY(ARRAY(SELECT child_id FROM done))
RETURNING step.task_id, step.workflow_id, step.kind, step.waits, step.passed

-- name: ready_steps
-- Promise: these blocked steps may run: pending, or scheduled where they have a delay or a time of their own.
-- Parameters: ids, now. Rows: history columns.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN coalesce(moment.now + step.delay, task.run_at) > moment.now THEN 'scheduled' ELSE 'pending' END,
        run_at = coalesce(moment.now + step.delay, greatest(task.run_at, moment.now)), ready_at = moment.now,
        random_key = {{random_place: task.attempts_left}}, weighted_key = {{weighted_place: task.attempts_left}}
    FROM dibs_steps AS step, moment
    WHERE task.id = ANY(:ids::bigint[]) AND step.task_id = task.id AND {{still: 'blocked'}}
    RETURNING task.id AS task_id, 'promoted' AS event, 'blocked' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: open_gates
-- Promise: each of these steps, which stand for sub-workflows, is claimed by its workflow, for as long as that runs.
-- Parameters: ids, now. Rows: history columns, the sub-workflow's id. They are pending in this transaction alone, so that
-- no worker can claim them.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = 'workflow-' || sub.id, incarnation = NULL,
        claimed_at = moment.now, lease_until = NULL, ahead = false, request = NULL
    FROM dibs_workflows AS sub, moment
    WHERE task.id = ANY(:ids::bigint[]) AND sub.step_of = task.id
      AND (task.state || '') IN ('pending', 'scheduled')
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, sub.id AS workflow_id
),
{{noted}}
SELECT * FROM changed

-- name: begin_workflows
-- Promise: the time of these sub-workflows runs from now on. Parameters: ids, now. Rows: none.
WITH {{moment}}
UPDATE dibs_workflows AS workflow SET deadline = moment.now + workflow.allowed
FROM moment
WHERE workflow.id = ANY(:ids::bigint[]) AND workflow.allowed IS NOT NULL

-- name: begin_steps
-- Promise: the steps of these sub-workflows that wait for no other step wait for nothing any more. Parameters: ids.
-- Rows: (task_id, workflow_id, kind, waits, passed). Also of those that were cancelled before: somebody may retry them.
UPDATE dibs_steps AS step SET waits = 0
WHERE step.workflow_id = ANY(:ids::bigint[]) AND step.kind <> 'finalizer' AND step.waits > 0
  AND NOT EXISTS (SELECT FROM dibs_edges AS edge JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
                  WHERE edge.child_id = step.task_id AND parent.passed IS NOT TRUE)
RETURNING step.task_id, step.workflow_id, step.kind, step.waits, step.passed

-- name: count_steps
-- Promise: each workflow has that many more steps, active, ended and failed ones. One that runs and has nothing active any
-- more waits for its finalization from now on; one that has something active does not, nor a sub-workflow that has not begun.
-- Parameters: of each id, steps, active, ended, failures; now. Rows: (id) of those whose finalization is due.
-- Safe: the root is held, so of the steps that end at the same moment one is the last, and its transaction sees that.
WITH {{moment}}
UPDATE dibs_workflows AS workflow
SET steps = workflow.steps + more.steps, active = workflow.active + more.active, ended = workflow.ended + more.ended,
    failures = workflow.failures + more.failures,
    due_at = CASE WHEN workflow.active + more.active = 0 AND workflow.state = 'running'
                   AND (workflow.step_of IS NULL OR EXISTS (
                       SELECT FROM dibs_tasks AS gate WHERE gate.id = workflow.step_of AND (gate.state || '') = 'claimed'))
                  THEN moment.now END
FROM json_to_recordset(:said::json) AS more (id bigint, steps int, active int, ended int, failures int), moment
WHERE workflow.id = more.id
RETURNING workflow.id, workflow.due_at

-- name: stop_workflow
-- Promise: nothing more is begun in this workflow; the first reason stays, but for 'failed', which leaves alone what runs.
-- Parameters: id, why. Rows: (id); none if it had ended or was stopping.
UPDATE dibs_workflows SET stopping = :why
WHERE id = :id AND (stopping IS NULL OR (stopping = 'failed' AND :why::text <> 'failed'))
  AND state IN ('running', 'finalizing')
RETURNING id

-- name: cancel_steps
-- Promise: the workflow's steps that wait in this state are cancelled. Parameters: id, from_state, now.
-- Rows: history columns. Index: dibs_steps_open.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET state = 'cancelled', finished_at = moment.now
    FROM dibs_steps AS step, moment
    WHERE step.workflow_id = :id AND step.passed IS NULL AND task.id = step.task_id AND {{still: :from_state}}
    RETURNING task.id AS task_id, 'cancelled' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, '{"by":"workflow"}' AS detail
),
{{noted}}
SELECT * FROM changed

-- name: stop_steps
-- Promise: the workers of this workflow's running steps learn at their next renewal that they should stop.
-- Parameters: id, now. Rows: history columns.
-- Safe: the rows are locked in the order of their ids, as those are who renew and finish them: nobody waits in a circle.
WITH {{moment}},
running AS MATERIALIZED (
    SELECT task.id FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
    WHERE step.workflow_id = :id AND step.passed IS NULL AND step.kind <> 'workflow'
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

-- name: end_workflow
-- Promise: the workflow has ended so, once. Parameters: id, state, error, now.
-- Rows: (step_of); none if it had ended. Safe: the tree is held, and `state` lets nobody end it twice.
WITH {{moment}}
UPDATE dibs_workflows AS workflow
SET state = :state, error = :error, finished_at = moment.now, due_at = NULL, finalization_by = NULL,
    finalization_until = NULL
FROM moment
WHERE workflow.id = :id AND workflow.state IN ('running', 'finalizing')
RETURNING workflow.step_of

-- name: finish_gate
-- Promise: the step that stands for a sub-workflow ends as its workflow did; also if that was cancelled before it began.
-- Parameters: id, from_state (claimed or blocked), state, result, error, now. Rows: history columns.
-- Safe: the tree is held, and a workflow ends once.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = :state, attempts = task.attempts + (:from_state::text = 'claimed')::integer, result = :result,
        error = :error, finished_at = moment.now
    FROM moment
    WHERE task.id = :id AND {{still: :from_state}}
    RETURNING task.id AS task_id, task.state AS event, :from_state::text AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, task.error AS detail
),
{{noted}}
SELECT * FROM changed

-- name: reopen_workflow
-- Promise: an ended workflow runs again. Parameters: id. Rows: (id); none if it has not failed or been cancelled.
-- A deadline in seconds begins anew, that of a sub-workflow with its step (see `begin_workflows`); one that was a
-- moment is gone if it is past: it could only fail again. What is being pruned stays as it is.
WITH {{moment}}
UPDATE dibs_workflows AS workflow
SET state = 'running', stopping = NULL, error = NULL, finished_at = NULL, due_at = NULL,
    deadline = CASE WHEN workflow.allowed IS NOT NULL THEN CASE WHEN workflow.step_of IS NULL THEN moment.now + workflow.allowed END
                    WHEN workflow.deadline > moment.now THEN workflow.deadline END
FROM moment
WHERE workflow.id = :id AND workflow.state IN ('failed', 'cancelled')
  AND workflow.stopping IS DISTINCT FROM 'pruned'
RETURNING workflow.id

-- name: reopen_steps
-- Promise: these steps are open again: blocked, with all their attempts. Those that wait for nothing are readied next.
-- What failed does not wait for its backoff. Parameters: ids, from_state, now. Rows: history columns.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'blocked', attempts = 0, cancel_requested = false, finished_at = NULL, worker_id = NULL,
        claimed_at = NULL, set_aside = NULL,
        run_at = CASE WHEN :from_state = 'failed' THEN moment.now ELSE task.run_at END
    FROM moment
    WHERE task.id = ANY(:ids::bigint[]) AND {{still: :from_state}}
    RETURNING task.id AS task_id, 'retried' AS event, :from_state::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed

-- name: unsettle_steps
-- Promise: these steps have not ended; a finalizer waits again. Parameters: ids. Rows: none.
UPDATE dibs_steps SET passed = NULL, waits = CASE kind WHEN 'finalizer' THEN 1 ELSE waits END
WHERE task_id = ANY(:ids::bigint[])

-- name: expired_workflows
-- Promise: up to `limit` workflows past their deadline that are not yet stopped for that, nor by somebody. Parameters: limit, now. Rows: (id).
-- Index: dibs_workflows_deadline.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE state IN ('running', 'finalizing') AND deadline IS NOT NULL AND deadline <= (SELECT now FROM moment) AND (stopping IS NULL OR stopping = 'failed')
ORDER BY deadline LIMIT {{limit}}

-- name: missed_steps
-- Promise: up to `limit` steps that have ended without their workflow being told. Parameters: limit. Rows: (task_id).
-- Index: dibs_steps_open, so that it costs what is open, not what has ever ended. Only programs that do not know workflows
-- leave such steps behind.
SELECT step.task_id FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.passed IS NULL AND (task.state || '') IN ('completed', 'failed', 'cancelled')
LIMIT {{limit}}

-- name: missed_finalizations
-- Promise: workflows that run but have nothing that could run wait for their finalization. Parameters: now. Rows: (id).
-- Derived from the steps themselves, whatever the counters say; a step that has ended
-- without its workflow being told is for `missed_steps`. A sub-workflow that has not begun is left alone.
-- Safe: rows that somebody changes right now are skipped.
WITH {{moment}},
forgotten AS MATERIALIZED (
    SELECT workflow.id FROM dibs_workflows AS workflow
    WHERE workflow.state = 'running' AND workflow.due_at IS NULL
      AND NOT EXISTS (SELECT FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
                      WHERE step.workflow_id = workflow.id AND step.passed IS NULL
                        AND (task.state || '') <> 'blocked')
      AND (workflow.step_of IS NULL
           OR EXISTS (SELECT FROM dibs_tasks AS gate WHERE gate.id = workflow.step_of AND (gate.state || '') = 'claimed'))
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE dibs_workflows AS workflow SET active = 0, due_at = moment.now
FROM forgotten, moment
WHERE workflow.id = forgotten.id
RETURNING workflow.id
