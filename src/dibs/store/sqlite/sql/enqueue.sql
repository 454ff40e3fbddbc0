-- Promise: one new task, pending if it is due and scheduled if not.
-- Parameters: id (the next free one), the task's values, delay or run_at, now. Rows: (id, state, created_at, run_at).
-- Safe: the write lock is held from `last_id` to the commit, so the id is free and no key can appear in between.
INSERT INTO dibs_tasks (
    id, type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base, backoff_cap,
    created_at, run_at, ready_at, key, key_content, trace, random_key, weighted_key
) VALUES (
    :id, :type, :type_version, :queue,
    CASE WHEN coalesce(:run_at, :now + :delay, :now) > :now THEN 'scheduled' ELSE 'pending' END,
    :priority, :params, :max_attempts, :timeout, :backoff_base, :backoff_cap,
    :now, coalesce(:run_at, :now + :delay, :now), :now, :key, :key_content, :trace,
    (SELECT position + dibs_exponential() FROM dibs_races
     WHERE queue = :queue AND type = :type AND attempts_left = :max_attempts AND kind = 'random'),
    (SELECT position + dibs_exponential() / max(:priority + 1, 1) FROM dibs_races
     WHERE queue = :queue AND type = :type AND attempts_left = :max_attempts AND kind = 'weighted')
)
