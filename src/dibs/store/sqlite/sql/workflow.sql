-- Workflows: their steps, how they advance, stop and run again.
-- Locks: one transaction writes at a time; it holds the lock of the file from its first statement to its commit.

-- name: start_workflow
-- Promise: a new workflow, unless a workflow started in the same queues has its key (no row then). Its steps follow
-- in the same transaction.
-- Parameters: root_id, step_of, name, key, key_content, on_failure, queues, allowed, deadline, now. Rows: (id).
-- Index: dibs_workflows_key decides which workflow owns a key. The deadline of a sub-workflow is set when the
-- sub-workflow begins (see `begin_workflows`).
INSERT INTO dibs_workflows (root_id, step_of, name, key, key_content, key_queues, on_failure, queues, created_at,
                            allowed, deadline)
VALUES (:root_id, :step_of, :name, :key, :key_content, CASE WHEN :key IS NOT NULL THEN :queues END, :on_failure,
        :queues, :now, :allowed,
        CASE WHEN :step_of IS NULL THEN coalesce(:deadline, :now + :allowed) ELSE :deadline END)
ON CONFLICT (key, key_queues) WHERE key IS NOT NULL DO NOTHING
RETURNING id

-- name: add_steps
-- Promise: these tasks are steps. Parameters: of each task_id, workflow_id, name, kind, on_failure, waits, delay.
INSERT INTO dibs_steps (task_id, workflow_id, name, kind, on_failure, waits, delay)
VALUES (:task_id, :workflow_id, :name, :kind, :on_failure, :waits, :delay)

-- name: add_edges
-- Promise: each child waits for its parent. Parameters: of each parent_id, child_id. Rows: none.
INSERT INTO dibs_edges (parent_id, child_id) VALUES (:parent_id, :child_id)

-- name: add_waits
-- Promise: each step waits for `more` further parents. Parameters: of each task_id, more. Rows: none.
UPDATE dibs_steps SET waits = waits + :more WHERE task_id = :task_id

-- name: find_steps
-- Promise: those steps of the workflow that have one of these names. Parameters: id, keys (the names).
-- Rows: (name, task_id, passed, queue). Index: dibs_steps_names.
SELECT step.name, step.task_id, step.passed, task.queue
FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.workflow_id = :id AND step.name IN (SELECT value FROM json_each(:keys))

-- name: steps_among
-- Promise: which of these tasks are steps, and in whose tree. Parameters: ids. Rows: (task_id, root).
SELECT task.id, coalesce(workflow.root_id, workflow.id)
FROM dibs_tasks AS task JOIN dibs_workflows AS workflow ON workflow.id = task.workflow_id
WHERE task.id IN (SELECT value FROM json_each(:ids))

-- name: roots_of
-- Promise: the roots of the trees that these workflows belong to. Parameters: ids. Rows: (id, root).
SELECT id, coalesce(root_id, id) FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids))

-- name: step
-- Promise: how these tasks stand as steps. Parameters: ids.
-- Rows: (task_id, workflow_id, name, kind, passed, the workflow's state, stopping, on_failure, root).
SELECT step.task_id, step.workflow_id, step.name, step.kind, step.passed, workflow.state, workflow.stopping,
       workflow.on_failure, coalesce(workflow.root_id, workflow.id)
FROM dibs_steps AS step JOIN dibs_workflows AS workflow ON workflow.id = step.workflow_id
WHERE step.task_id IN (SELECT value FROM json_each(:ids))

-- name: descendants
-- Promise: whether one of these steps waits for the step `id`, directly or through others. Parameters: ids, id.
-- Rows: (id); none if none does. Index: dibs_edges_child. The cost is that of the edges above them, up to what has passed.
WITH RECURSIVE above (id) AS (
    SELECT value FROM json_each(:ids)
    UNION
    SELECT edge.parent_id FROM above JOIN dibs_edges AS edge ON edge.child_id = above.id
    JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id AND parent.passed IS NOT 1
)
SELECT id FROM above WHERE id = :id LIMIT 1

-- name: settle_steps
-- Promise: of these steps those that have ended are settled, each once: passed, if it was completed or its failure is
-- ignored and nothing was given up. Parameters: ids, given_up.
-- Rows: (task_id, workflow_id, kind, on_failure, waits, passed, state).
-- Safe: `passed IS NULL` lets nobody count a step twice, and the workflow is held.
UPDATE dibs_steps
SET passed = NOT :given_up AND (task.state = 'completed' OR (dibs_steps.on_failure = 'ignore' AND dibs_steps.kind <> 'finalizer'))
FROM (SELECT id, state FROM dibs_tasks
      WHERE id IN (SELECT value FROM json_each(:ids)) AND +state IN ('completed', 'failed', 'cancelled')) AS task
WHERE task_id = task.id AND passed IS NULL
RETURNING task_id, workflow_id, kind, on_failure, waits, passed, (SELECT state FROM dibs_tasks WHERE id = task_id)

-- name: ignore_failures
-- Promise: these failed steps are no dead letters: their workflows went on without them. Parameters: ids, now.
-- Rows: history columns. Index: the primary key.
-- Safe: `settle_steps` has settled each of these steps once, in the same transaction, which alone writes.
UPDATE dibs_tasks SET set_aside = 'ignored'
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'failed'
RETURNING id, 'ignored', 'failed', state, NULL, token, NULL

-- name: open_children
-- Promise: the children of these steps wait for that many parents less. Parameters: ids (of steps that have passed).
-- Rows: (task_id, workflow_id, kind, waits, passed) of the children. The cost is that of the edges, however large the graph.
-- Also of those that were given up: if their workflow is retried, they must not wait for what is done.
UPDATE dibs_steps
SET waits = waits - done.parents
FROM (SELECT child_id, count(*) AS parents FROM dibs_edges WHERE parent_id IN (SELECT value FROM json_each(:ids))
      GROUP BY child_id) AS done
WHERE task_id = done.child_id
RETURNING task_id, workflow_id, kind, waits, passed

-- name: ready_steps
-- Promise: these blocked steps may run: pending, or scheduled where they have a delay or a time of their own.
-- Parameters: ids, now. Rows: history columns.
UPDATE dibs_tasks
SET state = CASE WHEN coalesce(:now + step.delay, dibs_tasks.run_at) > :now THEN 'scheduled' ELSE 'pending' END,
    run_at = coalesce(:now + step.delay, max(dibs_tasks.run_at, :now)), ready_at = :now,
    {{fresh_keys: dibs_tasks.attempts_left}}
FROM (SELECT task_id, delay FROM dibs_steps WHERE task_id IN (SELECT value FROM json_each(:ids))) AS step
WHERE dibs_tasks.id = step.task_id AND +dibs_tasks.state = 'blocked'
RETURNING id, 'promoted', 'blocked', state, NULL, token, NULL

-- name: open_gates
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

-- name: begin_workflows
-- Promise: the time of these sub-workflows runs from now on. Parameters: ids, now. Rows: none.
UPDATE dibs_workflows SET deadline = :now + allowed
WHERE id IN (SELECT value FROM json_each(:ids)) AND allowed IS NOT NULL

-- name: begin_steps
-- Promise: the steps of these sub-workflows that wait for no other step wait for nothing any more. Parameters: ids.
-- Rows: (task_id, workflow_id, kind, waits, passed). Also of those that were cancelled before: somebody may retry them.
UPDATE dibs_steps SET waits = 0
WHERE workflow_id IN (SELECT value FROM json_each(:ids)) AND kind <> 'finalizer' AND waits > 0
  AND NOT EXISTS (SELECT 1 FROM dibs_edges AS edge JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
                  WHERE edge.child_id = dibs_steps.task_id AND parent.passed IS NOT 1)
RETURNING task_id, workflow_id, kind, waits, passed

-- name: count_steps
-- Promise: each workflow has that many more steps, active, ended and failed ones. One that runs and has nothing active any
-- more waits for its finalization from now on; one that has something active does not, nor a sub-workflow that has not begun.
-- Parameters: of each id, steps, active, ended, failures; now. Rows: (id) of those whose finalization is due.
-- Safe: the root is held, so of the steps that end at the same moment one is the last, and its transaction sees that.
UPDATE dibs_workflows
SET steps = steps + :steps, active = active + :active, ended = ended + :ended, failures = failures + :failures,
    due_at = CASE WHEN active + :active = 0 AND state = 'running'
                   AND (step_of IS NULL OR EXISTS (
                       SELECT 1 FROM dibs_tasks AS gate WHERE gate.id = step_of AND +gate.state = 'claimed'))
                  THEN :now END
WHERE id = :id
RETURNING id, due_at

-- name: stop_workflow
-- Promise: nothing more is begun in this workflow; the first reason stays, but for 'failed', which leaves alone what runs.
-- Parameters: id, why. Rows: (id); none if it had ended or was stopping.
UPDATE dibs_workflows SET stopping = :why
WHERE id = :id AND (stopping IS NULL OR (stopping = 'failed' AND :why <> 'failed'))
  AND state IN ('running', 'finalizing')
RETURNING id

-- name: cancel_steps
-- Promise: the workflow's steps that wait in this state are cancelled. Parameters: id, from_state, now.
-- Rows: history columns. Index: dibs_steps_open.
UPDATE dibs_tasks SET state = 'cancelled', finished_at = :now
WHERE id IN (SELECT task_id FROM dibs_steps WHERE workflow_id = :id AND passed IS NULL) AND +state = :from_state
RETURNING id, 'cancelled', :from_state, state, NULL, token, '{"by":"workflow"}'

-- name: stop_steps
-- Promise: the workers of this workflow's running steps learn at their next renewal that they should stop.
-- Parameters: id, now. Rows: history columns.
UPDATE dibs_tasks SET cancel_requested = 1
WHERE id IN (SELECT task_id FROM dibs_steps WHERE workflow_id = :id AND passed IS NULL AND kind <> 'workflow')
  AND +state = 'claimed' AND NOT cancel_requested
RETURNING id, 'cancel_requested', 'claimed', state, worker_id, token, NULL

-- name: end_workflow
-- Promise: the workflow has ended so, once. Parameters: id, state, error, now.
-- Rows: (step_of); none if it had ended. Safe: the tree is held, and `state` lets nobody end it twice.
UPDATE dibs_workflows
SET state = :state, error = :error, finished_at = :now, due_at = NULL, finalization_by = NULL, finalization_until = NULL
WHERE id = :id AND state IN ('running', 'finalizing')
RETURNING step_of

-- name: finish_gate
-- Promise: the step that stands for a sub-workflow ends as its workflow did; also if that was cancelled before it began.
-- Parameters: id, from_state (claimed or blocked), state, result, error, now. Rows: history columns.
-- Safe: the tree is held, and a workflow ends once.
UPDATE dibs_tasks
SET state = :state, attempts = attempts + (:from_state = 'claimed'), result = :result, error = :error, finished_at = :now
WHERE id = :id AND +state = :from_state
RETURNING id, state, :from_state, state, worker_id, token, error

-- name: reopen_workflow
-- Promise: an ended workflow runs again. Parameters: id. Rows: (id); none if it has not failed or been cancelled.
-- A deadline in seconds begins anew, that of a sub-workflow with its step (see `begin_workflows`); one that was a
-- moment is gone if it is past: it could only fail again. What is being pruned stays as it is.
UPDATE dibs_workflows
SET state = 'running', stopping = NULL, error = NULL, finished_at = NULL, due_at = NULL,
    deadline = CASE WHEN allowed IS NOT NULL THEN CASE WHEN step_of IS NULL THEN :now + allowed END
                    WHEN deadline > :now THEN deadline END
WHERE id = :id AND state IN ('failed', 'cancelled') AND stopping IS NOT 'pruned'
RETURNING id

-- name: reopen_steps
-- Promise: these steps are open again: blocked, with all their attempts. Those that wait for nothing are readied next.
-- What failed does not wait for its backoff. Parameters: ids, from_state, now. Rows: history columns.
UPDATE dibs_tasks
SET state = 'blocked', attempts = 0, cancel_requested = 0, finished_at = NULL, worker_id = NULL, claimed_at = NULL,
    set_aside = NULL,
    run_at = CASE WHEN :from_state = 'failed' THEN :now ELSE run_at END
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :from_state
RETURNING id, 'retried', :from_state, state, NULL, token, NULL

-- name: unsettle_steps
-- Promise: these steps have not ended; a finalizer waits again. Parameters: ids. Rows: none.
UPDATE dibs_steps SET passed = NULL, waits = CASE kind WHEN 'finalizer' THEN 1 ELSE waits END
WHERE task_id IN (SELECT value FROM json_each(:ids))

-- name: expired_workflows
-- Promise: up to `limit` workflows past their deadline that are not yet stopped for that, nor by somebody. Parameters: limit, now. Rows: (id).
-- Index: dibs_workflows_deadline.
SELECT id FROM dibs_workflows INDEXED BY dibs_workflows_deadline
WHERE state IN ('running', 'finalizing') AND deadline IS NOT NULL AND deadline <= :now AND (stopping IS NULL OR stopping = 'failed') ORDER BY deadline LIMIT {{limit}}

-- name: missed_steps
-- Promise: up to `limit` steps that have ended without their workflow being told. Parameters: limit. Rows: (task_id).
-- Index: dibs_steps_open, so that it costs what is open, not what has ever ended. Only programs that do not know workflows
-- leave such steps behind.
SELECT step.task_id FROM dibs_steps AS step INDEXED BY dibs_steps_open JOIN dibs_tasks AS task ON task.id = step.task_id
WHERE step.passed IS NULL AND +task.state IN ('completed', 'failed', 'cancelled')
LIMIT {{limit}}

-- name: missed_finalizations
-- Promise: workflows that run but have nothing that could run wait for their finalization. Parameters: now. Rows: (id).
-- Derived from the steps themselves, whatever the counters say; a step that has ended
-- without its workflow being told is for `missed_steps`. A sub-workflow that has not begun is left alone.
UPDATE dibs_workflows SET active = 0, due_at = :now
WHERE state = 'running' AND due_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
                  WHERE step.workflow_id = dibs_workflows.id AND step.passed IS NULL
                    AND +task.state <> 'blocked')
  AND (step_of IS NULL OR EXISTS (SELECT 1 FROM dibs_tasks AS gate WHERE gate.id = step_of AND +gate.state = 'claimed'))
RETURNING id
