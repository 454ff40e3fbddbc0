-- Promise: these blocked steps may run: pending, or scheduled where they have a delay or a time of their own.
-- Parameters: ids, now. Rows: history columns.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = CASE WHEN coalesce(moment.now + step.delay, task.run_at) > moment.now THEN 'scheduled' ELSE 'pending' END,
        run_at = coalesce(moment.now + step.delay, greatest(task.run_at, moment.now)), ready_at = moment.now,
        random_key = {{random_place: task.attempts_left}}, weighted_key = {{weighted_place: task.attempts_left}}
    FROM dibs_steps AS step, moment
    WHERE task.id = ANY(%(ids)s::bigint[]) AND step.task_id = task.id AND {{still: 'blocked'}}
    RETURNING task.id AS task_id, 'promoted' AS event, 'blocked' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
