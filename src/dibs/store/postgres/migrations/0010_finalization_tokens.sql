-- Renewing, releasing and finalizing as functions that name the token, so that a program in any language can finalize
-- workflows from SQL alone; and arguments that are checked.
-- compatible: 10
--
-- The public functions: dibs_claim_finalization, dibs_renew_finalization, dibs_release_finalization, dibs_finalize and
-- dibs_execution_context. A processor is fenced by its token: a claim is renewed, released or acted upon only under the
-- token that it was granted with, so a process that reuses the name of another cannot touch the claim of that one.
-- p_now is for tests. All other callers leave it out, and the database's clock holds.

DROP FUNCTION dibs_release_finalization(bigint, text);

-- Raises an error for arguments that no claim can have. NaN is larger than any number, and so out of range.
CREATE FUNCTION dibs_check_finalization(p_workflow bigint, p_processor text, p_token bigint,
                                        p_timeout_seconds double precision)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_workflow IS NULL THEN
        RAISE EXCEPTION 'The workflow must not be NULL.' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass the id of a workflow: the column id of dibs_workflows.';
    END IF;
    IF (char_length(p_processor) BETWEEN 1 AND 255) IS NOT TRUE OR p_processor ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'The processor must be one line of 1 to 255 characters, not %.', coalesce(quote_literal(p_processor), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass a name that no other process has, such as a host name with a random suffix.';
    END IF;
    IF p_token IS NULL THEN
        RAISE EXCEPTION 'The token must not be NULL.' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass the token that dibs_claim_finalization returned.';
    END IF;
    IF (p_timeout_seconds BETWEEN 0.001 AND 3153600000) IS NOT TRUE THEN
        RAISE EXCEPTION 'The timeout must be between 0.001 and 3153600000 seconds, not %.', coalesce(p_timeout_seconds::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out for 30 seconds.';
    END IF;
END
$$;

-- The right to finalize a workflow, for p_timeout_seconds; the same processor again extends it. Every call is recorded.
-- Safe: the row is read without a lock, and written only if nobody has claimed it since: an UPDATE that had to wait
-- checks its condition again. A caller that loses the race gets race_condition as its answer; the finalization stays due.
CREATE OR REPLACE FUNCTION dibs_claim_finalization(p_workflow bigint, p_processor text,
                                                   p_timeout_seconds double precision DEFAULT 30, p_now bigint DEFAULT NULL)
RETURNS TABLE (claimed boolean, already_claimed_by text, state text, message text, reason text, token bigint,
               lease_until bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    v_workflow dibs_workflows;
BEGIN
    PERFORM dibs_check_finalization(p_workflow, p_processor, 0, p_timeout_seconds);
    claimed := false;
    SELECT * INTO v_workflow FROM dibs_workflows AS workflow WHERE workflow.id = p_workflow;
    IF NOT FOUND THEN
        state := 'not_found'; reason := 'not_found'; message := 'Workflow not found';
    ELSIF v_workflow.state IN ('completed', 'failed', 'cancelled') THEN
        state := v_workflow.state; reason := 'already_complete'; message := 'Workflow already complete';
    ELSIF v_workflow.state = 'finalizing' THEN
        SELECT task.worker_id INTO already_claimed_by FROM dibs_tasks AS task WHERE task.id = v_workflow.finalizer_id;
        state := 'finalizing'; reason := 'already_claimed';
        message := 'Workflow already claimed for finalization: its finalizer runs';
    ELSIF v_workflow.ended = 0 AND v_workflow.steps > 0 THEN
        state := dibs_execution_status(v_workflow); reason := 'not_ready';
        message := 'Workflow has no completed or failed steps';
    ELSIF v_workflow.finalization_until > v_now AND v_workflow.finalization_by <> p_processor THEN
        state := dibs_execution_status(v_workflow); reason := 'already_claimed';
        already_claimed_by := v_workflow.finalization_by; message := 'Workflow already claimed for finalization';
    ELSE
        UPDATE dibs_workflows AS workflow
        SET finalization_token = workflow.finalization_token
                + CASE WHEN workflow.finalization_until > v_now AND workflow.finalization_by = p_processor THEN 0 ELSE 1 END,
            finalization_by = p_processor,
            finalization_until = v_now + (p_timeout_seconds * 1000000)::bigint
        WHERE workflow.id = p_workflow AND workflow.state = 'running'
          AND (workflow.finalization_until IS NULL OR workflow.finalization_until <= v_now
               OR workflow.finalization_by = p_processor)
        RETURNING true, workflow.finalization_token, workflow.finalization_until INTO claimed, token, lease_until;
        IF FOUND THEN
            reason := CASE WHEN token = v_workflow.finalization_token THEN 'extended' ELSE 'claimed' END;
            message := CASE reason WHEN 'extended' THEN 'Claim extended'
                                   ELSE 'Successfully claimed for finalization' END;
            already_claimed_by := CASE reason WHEN 'extended' THEN p_processor END;
        ELSE
            claimed := false; reason := 'race_condition'; message := 'Failed to claim: lost the race';
            SELECT workflow.finalization_by INTO already_claimed_by FROM dibs_workflows AS workflow
            WHERE workflow.id = p_workflow;
        END IF;
        state := dibs_execution_status(v_workflow);
    END IF;
    INSERT INTO dibs_finalization_attempts AS attempt
        (workflow_id, processor, claimed, reason, state, message, already_claimed_by, token, at)
    VALUES (p_workflow, p_processor, dibs_claim_finalization.claimed, dibs_claim_finalization.reason,
            dibs_claim_finalization.state, dibs_claim_finalization.message,
            dibs_claim_finalization.already_claimed_by, dibs_claim_finalization.token, v_now);
    RETURN NEXT;
END
$$;

-- Extends the claim that this processor has under this token, to p_timeout_seconds from now. Grants no new claim.
-- A lease that ran out is extended too, if no other claim was granted since.
-- Safe: one UPDATE names the processor, the token and the state, and checks them again if it had to wait.
CREATE FUNCTION dibs_renew_finalization(p_workflow bigint, p_processor text, p_token bigint,
                                        p_timeout_seconds double precision DEFAULT 30, p_now bigint DEFAULT NULL)
RETURNS TABLE (claimed boolean, already_claimed_by text, state text, message text, reason text, token bigint,
               lease_until bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    v_workflow dibs_workflows;
BEGIN
    PERFORM dibs_check_finalization(p_workflow, p_processor, p_token, p_timeout_seconds);
    claimed := false;
    UPDATE dibs_workflows AS workflow SET finalization_until = v_now + (p_timeout_seconds * 1000000)::bigint
    WHERE workflow.id = p_workflow AND workflow.state = 'running'
      AND workflow.finalization_by = p_processor AND workflow.finalization_token = p_token
    RETURNING true, workflow.finalization_token, workflow.finalization_until INTO claimed, token, lease_until;
    claimed := coalesce(claimed, false);
    SELECT * INTO v_workflow FROM dibs_workflows AS workflow WHERE workflow.id = p_workflow;
    IF NOT FOUND THEN
        state := 'not_found'; reason := 'not_found'; message := 'Workflow not found';
    ELSIF v_workflow.state IN ('completed', 'failed', 'cancelled') THEN
        state := v_workflow.state; reason := 'already_complete'; message := 'Workflow already complete';
    ELSIF v_workflow.state = 'finalizing' THEN
        SELECT task.worker_id INTO already_claimed_by FROM dibs_tasks AS task WHERE task.id = v_workflow.finalizer_id;
        state := 'finalizing'; reason := 'already_claimed';
        message := 'Workflow already claimed for finalization: its finalizer runs';
    ELSIF claimed THEN
        state := dibs_execution_status(v_workflow); reason := 'extended'; message := 'Claim extended';
        already_claimed_by := p_processor;
    ELSIF v_workflow.finalization_until > v_now THEN
        state := dibs_execution_status(v_workflow); reason := 'already_claimed';
        already_claimed_by := v_workflow.finalization_by;
        message := format('Workflow already claimed for finalization by %s under token %s',
                          v_workflow.finalization_by, v_workflow.finalization_token);
    ELSE
        state := dibs_execution_status(v_workflow); reason := 'not_claimed';
        message := 'Nobody holds the finalization of this workflow';
    END IF;
    RETURN NEXT;
END
$$;

-- Gives up the claim that this processor has under this token. False, and nothing changes, for any other caller.
-- Safe: one UPDATE names the processor and the token, and checks them again if it had to wait.
CREATE FUNCTION dibs_release_finalization(p_workflow bigint, p_processor text, p_token bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dibs_check_finalization(p_workflow, p_processor, p_token, 30);
    UPDATE dibs_workflows AS workflow SET finalization_by = NULL, finalization_until = NULL
    WHERE workflow.id = p_workflow
      AND workflow.finalization_by = p_processor AND workflow.finalization_token = p_token;
    RETURN FOUND;
END
$$;

-- Internal. The parts of dibs_finalize below do what the statements in sql/ do for dibs itself: cancel_steps, settle_steps,
-- ready_steps, open_gates, begin_workflows, begin_steps, open_children, stop_workflow, finish_gate and end_workflow, in the
-- order of store/operations/advancing.py. The caller holds the root of the workflow's tree. Each returns the workflows
-- whose counters it changed.

-- Internal. Cancels the steps of the workflow that have not begun, sub-workflows with everything in them.
CREATE FUNCTION dibs_cancel_waiting_steps(p_workflow bigint, p_by text, p_now bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_state text;
    v_some bigint[];
    v_cancelled bigint[] := '{}';
    v_sub bigint;
    v_changed bigint[] := ARRAY[p_workflow];
BEGIN
    -- In the order in which tasks become due by themselves: a task that is promoted meanwhile is found in its next state.
    FOREACH v_state IN ARRAY ARRAY['scheduled', 'pending', 'blocked'] LOOP
        WITH changed AS (
            UPDATE dibs_tasks AS task SET state = 'cancelled', finished_at = p_now
            FROM dibs_steps AS step
            WHERE step.workflow_id = p_workflow AND step.passed IS NULL AND task.id = step.task_id
              AND (task.state || '') = v_state
            RETURNING task.id, task.token
        ),
        noted AS (
            INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
            SELECT id, 'cancelled', v_state, 'cancelled', NULL, token, '{"by":"workflow"}', p_by, p_now FROM changed
        )
        SELECT coalesce(array_agg(id), '{}') INTO v_some FROM changed;
        v_cancelled := v_cancelled || v_some;
    END LOOP;
    WITH settled AS (
        UPDATE dibs_steps AS step SET passed = false
        WHERE step.task_id = ANY(v_cancelled) AND step.passed IS NULL
        RETURNING step.kind, step.waits
    ),
    counted AS (
        SELECT count(*) FILTER (WHERE waits = 0) AS active, count(*) AS ended FROM settled WHERE kind <> 'finalizer'
    )
    UPDATE dibs_workflows AS workflow
    SET active = workflow.active - counted.active, ended = workflow.ended + counted.ended,
        failures = workflow.failures + counted.ended
    FROM counted WHERE workflow.id = p_workflow;
    FOR v_sub IN SELECT sub.id FROM dibs_workflows AS sub WHERE sub.step_of = ANY(v_cancelled) ORDER BY sub.id LOOP
        v_changed := v_changed || dibs_cancel_waiting_steps(v_sub, p_by, p_now);
        UPDATE dibs_workflows AS sub
        SET state = 'cancelled', finished_at = p_now, due_at = NULL, finalization_by = NULL, finalization_until = NULL
        WHERE sub.id = v_sub AND sub.state IN ('running', 'finalizing');
    END LOOP;
    RETURN v_changed;
END
$$;

-- Internal. These blocked steps may run: pending, or scheduled where they have a delay or a time of their own. Returns how
-- many were blocked.
CREATE FUNCTION dibs_promote_steps(p_tasks bigint[], p_by text, p_now bigint) RETURNS bigint LANGUAGE sql AS $$
    WITH changed AS (
        UPDATE dibs_tasks AS task
        SET state = CASE WHEN coalesce(p_now + step.delay, task.run_at) > p_now THEN 'scheduled' ELSE 'pending' END,
            run_at = coalesce(p_now + step.delay, greatest(task.run_at, p_now)), ready_at = p_now,
            random_key = (SELECT race.position - ln(1 - random()) FROM dibs_races AS race
                          WHERE race.queue = task.queue AND race.type = task.type
                            AND race.attempts_left = task.attempts_left AND race.kind = 'random'),
            weighted_key = (SELECT race.position - ln(1 - random()) / greatest(task.priority::bigint + 1, 1)
                            FROM dibs_races AS race
                            WHERE race.queue = task.queue AND race.type = task.type
                              AND race.attempts_left = task.attempts_left AND race.kind = 'weighted')
        FROM dibs_steps AS step
        WHERE task.id = ANY(p_tasks) AND step.task_id = task.id AND (task.state || '') = 'blocked'
        RETURNING task.id, task.state, task.token
    ),
    noted AS (
        INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
        SELECT id, 'promoted', 'blocked', state, NULL, token, NULL, p_by, p_now FROM changed
    )
    SELECT count(*) FROM changed
$$;

-- Internal. These steps wait for nothing any more. A sub-workflow begins with its first steps, which may be sub-workflows.
CREATE FUNCTION dibs_begin_steps(p_tasks bigint[], p_by text, p_now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_tasks bigint[] := p_tasks;
    v_begun bigint[];
    v_changed bigint[] := '{}';
BEGIN
    WHILE cardinality(v_tasks) > 0 LOOP
        PERFORM dibs_promote_steps(v_tasks, p_by, p_now);
        WITH counted AS (
            SELECT step.workflow_id, count(*) AS more FROM dibs_steps AS step
            WHERE step.task_id = ANY(v_tasks) GROUP BY step.workflow_id
        ),
        active AS (
            UPDATE dibs_workflows AS workflow SET active = workflow.active + counted.more
            FROM counted WHERE workflow.id = counted.workflow_id
            RETURNING workflow.id
        )
        SELECT v_changed || coalesce(array_agg(id), '{}') INTO v_changed FROM active;
        -- They are pending in this transaction alone, so that no worker can claim them.
        WITH changed AS (
            UPDATE dibs_tasks AS task
            SET state = 'claimed', token = task.token + 1, worker_id = 'workflow-' || sub.id, incarnation = NULL,
                claimed_at = p_now, lease_until = NULL, ahead = false, request = NULL
            FROM dibs_workflows AS sub
            WHERE task.id = ANY(v_tasks) AND sub.step_of = task.id AND (task.state || '') IN ('pending', 'scheduled')
            RETURNING task.id, task.worker_id, task.token, sub.id AS workflow_id
        ),
        noted AS (
            INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
            SELECT id, 'claimed', 'pending', 'claimed', worker_id, token, NULL, p_by, p_now FROM changed
        )
        SELECT coalesce(array_agg(workflow_id), '{}') INTO v_begun FROM changed;
        UPDATE dibs_workflows AS workflow SET deadline = p_now + workflow.allowed
        WHERE workflow.id = ANY(v_begun) AND workflow.allowed IS NOT NULL;
        WITH freed AS (
            UPDATE dibs_steps AS step SET waits = 0
            WHERE step.workflow_id = ANY(v_begun) AND step.kind <> 'finalizer' AND step.waits > 0
              AND NOT EXISTS (SELECT FROM dibs_edges AS edge JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
                              WHERE edge.child_id = step.task_id AND parent.passed IS NOT TRUE)
            RETURNING step.task_id, step.passed
        )
        SELECT coalesce(array_agg(task_id) FILTER (WHERE passed IS NULL), '{}') INTO v_tasks FROM freed;
        v_changed := v_changed || v_begun;  -- one without steps is due at once
    END LOOP;
    RETURN v_changed;
END
$$;

-- Internal. The workflow has ended so. If it is a step of another one, that step has ended as well, and what waits for the
-- step may begin or is given up.
CREATE FUNCTION dibs_end_workflow(p_workflow dibs_workflows, p_state text, p_error text, p_by text, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_result text;
    v_count bigint;
    v_step dibs_steps;
    v_free bigint[];
BEGIN
    UPDATE dibs_workflows AS workflow
    SET state = p_state, error = p_error, finished_at = p_now, due_at = NULL, finalization_by = NULL,
        finalization_until = NULL
    WHERE workflow.id = p_workflow.id AND workflow.state IN ('running', 'finalizing');
    IF NOT FOUND OR p_workflow.step_of IS NULL THEN
        RETURN '{}';
    END IF;
    IF p_state = 'completed' AND p_workflow.finalizer_id IS NULL THEN
        -- The result of a sub-workflow without a finalizer: those of the steps that no other step waits for, by name.
        SELECT '{' || coalesce(string_agg(to_json(step.name)::text || ':' || coalesce(task.result, 'null'), ','
                                          ORDER BY step.task_id), '') || '}'
        INTO v_result
        FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
        WHERE step.workflow_id = p_workflow.id AND step.kind <> 'finalizer'
          AND NOT EXISTS (SELECT FROM dibs_edges AS edge WHERE edge.parent_id = step.task_id);
    END IF;
    WITH changed AS (
        UPDATE dibs_tasks AS task
        SET state = p_state, attempts = task.attempts + 1, result = v_result, error = p_error, finished_at = p_now
        WHERE task.id = p_workflow.step_of AND (task.state || '') = 'claimed'
        RETURNING task.id, task.worker_id, task.token
    ),
    noted AS (
        INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
        SELECT id, p_state, 'claimed', p_state, worker_id, token, p_error, p_by, p_now FROM changed
    )
    SELECT count(*) INTO v_count FROM changed;
    IF v_count = 0 THEN
        RETURN '{}';
    END IF;
    UPDATE dibs_steps AS step SET passed = (p_state = 'completed' OR step.on_failure = 'ignore')
    WHERE step.task_id = p_workflow.step_of AND step.passed IS NULL
    RETURNING * INTO v_step;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    UPDATE dibs_workflows AS workflow
    SET active = workflow.active - (v_step.waits = 0)::integer, ended = workflow.ended + 1,
        failures = workflow.failures + (NOT v_step.passed)::integer
    WHERE workflow.id = v_step.workflow_id;
    IF v_step.passed AND p_state = 'failed' THEN  -- as ignore_failures.sql does: the workflow goes on, no dead letter
        UPDATE dibs_tasks AS task SET set_aside = 'ignored' WHERE task.id = v_step.task_id;
        INSERT INTO dibs_history (task_id, event, from_state, to_state, token, by, at)
        SELECT task.id, 'ignored', 'failed', 'failed', task.token, p_by, p_now
        FROM dibs_tasks AS task WHERE task.id = v_step.task_id;
    END IF;
    IF v_step.passed THEN
        WITH opened AS (
            UPDATE dibs_steps AS step SET waits = step.waits - 1
            WHERE step.task_id = ANY(ARRAY(SELECT edge.child_id FROM dibs_edges AS edge
                                           WHERE edge.parent_id = v_step.task_id))
            RETURNING step.task_id, step.waits, step.passed
        )
        SELECT coalesce(array_agg(task_id) FILTER (WHERE waits = 0 AND passed IS NULL), '{}') INTO v_free FROM opened;
        RETURN ARRAY[v_step.workflow_id] || dibs_begin_steps(v_free, p_by, p_now);
    END IF;
    IF v_step.on_failure = 'fail' THEN
        UPDATE dibs_workflows AS workflow SET stopping = 'failed'
        WHERE workflow.id = v_step.workflow_id AND workflow.stopping IS NULL AND workflow.state IN ('running', 'finalizing');
        IF FOUND THEN
            RETURN dibs_cancel_waiting_steps(v_step.workflow_id, p_by, p_now);
        END IF;
    END IF;
    RETURN ARRAY[v_step.workflow_id];
END
$$;

-- Internal. Why the workflow fails, as JSON: its deadline, or the step that failed first.
CREATE FUNCTION dibs_failure_of(p_workflow dibs_workflows) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_type text := 'WorkflowStopped';
    v_message text := 'It was stopped before it was done.';
    v_step record;
BEGIN
    IF p_workflow.stopping = 'deadline' THEN
        v_type := 'DeadlineExceeded';
        v_message := format('It was not done by %s UTC.',
            to_char(to_timestamp(p_workflow.deadline / 1000000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'));
    ELSE
        SELECT step.name, task.id, task.state, task.error::json AS error INTO v_step
        FROM dibs_steps AS step JOIN dibs_tasks AS task ON task.id = step.task_id
        WHERE step.workflow_id = p_workflow.id AND step.kind <> 'finalizer' AND NOT step.passed
          AND task.state IN ('failed', 'cancelled')
        ORDER BY task.state = 'failed' DESC, task.finished_at, task.id
        LIMIT 1;
        IF FOUND THEN
            v_type := 'StepFailed';
            v_message := format('Step ''%s'' (task %s) %s%s', v_step.name, v_step.id,
                CASE v_step.state WHEN 'cancelled' THEN 'was cancelled' ELSE 'failed' END,
                CASE WHEN v_step.error IS NULL THEN '.'
                     ELSE format(': %s: %s', v_step.error ->> 'type', v_step.error ->> 'message') END);
            IF char_length(v_message) > 65536 THEN
                v_message := '… ' || right(v_message, 65536);
            END IF;
        END IF;
    END IF;
    RETURN json_build_object('type', v_type, 'message', v_message, 'traceback', NULL);
END
$$;

-- Internal: dibs_finalize without the wake-up, with the API key for the history and the time of a test.
-- Safe: the root of the workflow's tree is locked by a statement of its own before anything is read, as sql/hold_workflows.sql
-- explains; under that lock no other transaction ends, adds or begins a step of the tree, or grants a claim of the root. A
-- claim of a sub-workflow is granted under that workflow's own row, so that row is locked too before the fence is checked.
CREATE FUNCTION dibs_finalize_at(p_workflow bigint, p_processor text, p_token bigint, p_by text, p_now bigint)
RETURNS TABLE (finalized boolean, state text, execution_status text, action text, reason text, message text, due bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    v_root bigint;
    v_workflow dibs_workflows;
    v_begun boolean;
    v_end text;
    v_changed bigint[] := '{}';
BEGIN
    finalized := false; due := '{}';
    SELECT coalesce(workflow.root_id, workflow.id) INTO v_root FROM dibs_workflows AS workflow WHERE workflow.id = p_workflow;
    PERFORM FROM dibs_workflows AS root WHERE root.id = v_root FOR NO KEY UPDATE;
    SELECT * INTO v_workflow FROM dibs_workflows AS workflow WHERE workflow.id = p_workflow FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        state := 'not_found'; reason := 'not_found'; message := 'Workflow not found';
        RETURN NEXT;
        RETURN;
    END IF;
    IF (v_workflow.state = 'running'
        AND v_workflow.finalization_by = p_processor AND v_workflow.finalization_token = p_token) IS NOT TRUE THEN
        state := v_workflow.state; reason := 'finalization_lost';
        message := format('%s does not hold the finalization of workflow %s under token %s: %s.', p_processor, p_workflow, p_token,
            CASE WHEN v_workflow.state <> 'running' THEN 'it is ' || v_workflow.state
                 WHEN v_workflow.finalization_by IS NULL THEN 'nobody holds it now'
                 ELSE format('%s holds it under token %s', v_workflow.finalization_by, v_workflow.finalization_token) END);
        RETURN NEXT;
        RETURN;
    END IF;
    execution_status := dibs_execution_status(v_workflow);
    v_begun := v_workflow.step_of IS NULL
        OR EXISTS (SELECT FROM dibs_tasks AS gate WHERE gate.id = v_workflow.step_of AND (gate.state || '') = 'claimed');
    IF NOT v_begun OR execution_status NOT IN ('blocked_by_failures', 'all_complete') THEN
        action := 'recheck_later';
        UPDATE dibs_workflows AS workflow
        SET finalization_by = NULL, finalization_until = NULL,
            due_at = CASE WHEN workflow.active = 0 THEN workflow.due_at END
        WHERE workflow.id = p_workflow;
    ELSIF execution_status = 'blocked_by_failures' OR v_workflow.stopping IS NOT NULL THEN
        action := 'fail_workflow';
        v_changed := dibs_cancel_waiting_steps(p_workflow, p_by, v_now);
        v_end := CASE v_workflow.stopping WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END;
        v_changed := v_changed || dibs_end_workflow(v_workflow, v_end,
            CASE WHEN v_end = 'failed' THEN dibs_failure_of(v_workflow) END, p_by, v_now);
    ELSIF v_workflow.finalizer_id IS NULL THEN
        action := 'complete_workflow';
        v_changed := dibs_end_workflow(v_workflow, 'completed', NULL, p_by, v_now);
    ELSE
        action := 'complete_workflow';
        UPDATE dibs_workflows AS workflow
        SET state = 'finalizing', due_at = NULL, finalization_by = NULL, finalization_until = NULL
        WHERE workflow.id = p_workflow;
        UPDATE dibs_steps AS step SET waits = 0 WHERE step.task_id = v_workflow.finalizer_id;
        IF dibs_promote_steps(ARRAY[v_workflow.finalizer_id], p_by, v_now) = 0 THEN
            v_changed := dibs_end_workflow(v_workflow, 'failed', json_build_object('type', 'FinalizerCancelled',
                'message', format('The finalizer, task %s, was cancelled.', v_workflow.finalizer_id), 'traceback', NULL)::text,
                p_by, v_now);
        END IF;
    END IF;
    WITH counted AS (
        UPDATE dibs_workflows AS workflow
        SET due_at = CASE WHEN workflow.active = 0 AND workflow.state = 'running'
                           AND (workflow.step_of IS NULL OR EXISTS (
                               SELECT FROM dibs_tasks AS gate
                               WHERE gate.id = workflow.step_of AND (gate.state || '') = 'claimed'))
                          THEN v_now END
        WHERE workflow.id = ANY(v_changed)
        RETURNING workflow.id, workflow.due_at
    )
    SELECT coalesce(array_agg(id ORDER BY id) FILTER (WHERE due_at IS NOT NULL), '{}') INTO due FROM counted;
    SELECT workflow.state INTO state FROM dibs_workflows AS workflow WHERE workflow.id = p_workflow;
    finalized := true; reason := 'finalized';
    message := CASE WHEN action = 'recheck_later' THEN 'Nothing to finalize yet: ' || replace(execution_status, '_', ' ')
                    ELSE 'Workflow is ' || state END;
    RETURN NEXT;
END
$$;

-- Acts on how the workflow stands, as the holder of its finalization, in one transaction: the workflow is completed, or its
-- finalizer begins, or it fails, or it is left to be checked later. The claim ends. `finalized` is false, and nothing
-- changes, where the workflow does not exist or the claim is not the caller's under this token. `due`: other workflows
-- whose finalization became due, such as the one that this workflow is a step of.
CREATE FUNCTION dibs_finalize(p_workflow bigint, p_processor text, p_token bigint)
RETURNS TABLE (finalized boolean, state text, execution_status text, action text, reason text, message text, due bigint[])
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dibs_check_finalization(p_workflow, p_processor, p_token, 30);
    SELECT * INTO finalized, state, execution_status, action, reason, message, due
    FROM dibs_finalize_at(p_workflow, p_processor, p_token, NULL, NULL);
    IF finalized THEN
        PERFORM pg_notify('dibs', '');  -- workers look for the finalizer, and for the steps that may begin now
    END IF;
    RETURN NEXT;
END
$$;
