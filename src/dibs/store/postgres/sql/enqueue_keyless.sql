-- Promise: one new task for each row, pending if it is due and scheduled if not, each with its first line of history. No
-- row has a key, so none can be in conflict: nothing is sorted, nothing is inserted on trial.
-- Parameters: said (a JSON array of the tasks), now, by. Rows: (id, state, created_at); the ids grow in the order of the
-- array.
WITH {{moment}},
changed AS (
    INSERT INTO dibs_tasks (type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base,
                            backoff_cap, created_at, run_at, ready_at, trace, random_key, weighted_key)
    SELECT task.type, task.type_version, task.queue,
           CASE WHEN coalesce(task.run_at, moment.now + task.delay, moment.now) > moment.now
                THEN 'scheduled' ELSE 'pending' END,
           task.priority, task.params, task.max_attempts, task.timeout, task.backoff_base, task.backoff_cap,
           moment.now, coalesce(task.run_at, moment.now + task.delay, moment.now), moment.now, task.trace,
           {{random_place: task.max_attempts}}, {{weighted_place: task.max_attempts}}
    FROM moment,
         json_to_recordset(%(said)s::json)
             AS task (type text, type_version int, queue text, priority int, params text, max_attempts int,
                      timeout bigint, backoff_base bigint, backoff_cap bigint, delay bigint, run_at bigint, trace text)
    RETURNING id AS task_id, 'enqueued' AS event, NULL::text AS from_state, state AS to_state, NULL::text AS by_worker,
        token AS under_token, NULL::text AS detail, created_at
),
{{noted}}
SELECT task_id, to_state, created_at FROM changed
