-- Promise: one new task for each step, under the given id: blocked if it waits for something, else pending or scheduled.
-- Parameters: of each its id, workflow_id, blocked and the task's values; now. Rows: none.
INSERT INTO dibs_tasks (
    id, workflow_id, type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base, backoff_cap,
    created_at, run_at, ready_at, trace, random_key, weighted_key
) VALUES (
    :id, :workflow_id, :type, :type_version, :queue,
    CASE WHEN :blocked THEN 'blocked'
         WHEN coalesce(:run_at, :now + :delay, :now) > :now THEN 'scheduled' ELSE 'pending' END,
    :priority, :params, :max_attempts, :timeout, :backoff_base, :backoff_cap,
    :now, coalesce(:run_at, :now + :delay, :now), :now, :trace,
    (SELECT position + dibs_exponential() FROM dibs_races
     WHERE queue = :queue AND type = :type AND attempts_left = :max_attempts AND kind = 'random'),
    (SELECT position + dibs_exponential() / max(:priority + 1, 1) FROM dibs_races
     WHERE queue = :queue AND type = :type AND attempts_left = :max_attempts AND kind = 'weighted')
)
