-- Promise: these steps are open again: blocked, with all their attempts. Those that wait for nothing are readied next.
-- What failed does not wait for its backoff. Parameters: ids, from_state, now. Rows: history columns.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'blocked', attempts = 0, cancel_requested = false, finished_at = NULL, worker_id = NULL,
        claimed_at = NULL, set_aside = NULL,
        run_at = CASE WHEN %(from_state)s = 'failed' THEN moment.now ELSE task.run_at END
    FROM moment
    WHERE task.id = ANY(%(ids)s::bigint[]) AND {{still: %(from_state)s}}
    RETURNING task.id AS task_id, 'retried' AS event, %(from_state)s::text AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
