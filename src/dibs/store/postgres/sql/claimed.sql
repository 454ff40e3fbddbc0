-- The picked rows become claims. A fragment of claim.sql and claim_any.sql. Words: hands (to_one or to_many).
-- They are found again by an array of ids, not by a join: for a join with some hundred rows the planner reads the whole
-- table, up to some 100,000 rows, which was a quarter of the claim's time at 20,000.
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, {{hands}},
        claimed_at = moment.now, lease_until = moment.now + %(lease)s, ahead = %(ahead)s,
        request = %(request)s, progress = NULL, progress_message = NULL
    FROM moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, {{task}}
),
{{noted}}
