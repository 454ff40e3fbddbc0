-- One line of history for each row of `changed`, in the same statement. A fragment.
noted AS (
    INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
    SELECT task_id, event, from_state, to_state, by_worker, under_token, detail, %(by)s::text, moment.now
    FROM changed, moment
)
