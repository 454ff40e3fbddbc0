-- Promise: one new task for each step, under the given id: blocked if it waits for something, else pending or scheduled.
-- Parameters: of each its id, workflow_id, blocked and the task's values; now. Rows: none.
WITH {{moment}},
changed AS (
    INSERT INTO dibs_tasks (id, workflow_id, type, type_version, queue, state, priority, params, max_attempts, timeout,
                            backoff_base, backoff_cap, created_at, run_at, ready_at, trace, random_key, weighted_key)
    SELECT task.id, task.workflow_id, task.type, task.type_version, task.queue,
           CASE WHEN task.blocked THEN 'blocked'
                WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now THEN 'scheduled'
                ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.trace,
           {{random_place: task.max_attempts}}, {{weighted_place: task.max_attempts}}
    FROM json_to_recordset(%(said)s::json)
             AS task (id bigint, workflow_id bigint, blocked boolean, type text, type_version int, queue text,
                      priority int, params text, max_attempts int, timeout bigint, backoff_base bigint,
                      backoff_cap bigint, delay bigint, run_at bigint, trace text),
         moment
    RETURNING id AS task_id, 'enqueued' AS event, NULL::text AS from_state, state AS to_state, NULL::text AS by_worker,
        token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT task_id FROM changed
