-- The picked rows become claims. A fragment of claim.sql and claim_any.sql.
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = %(worker_id)s, incarnation = %(incarnation)s,
        claimed_at = moment.now, lease_until = moment.now + %(lease)s, ahead = %(ahead)s,
        progress = NULL, progress_message = NULL
    FROM picked, moment
    WHERE task.id = picked.id
    RETURNING picked.rank, task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, {{task}}
),
{{noted}}
