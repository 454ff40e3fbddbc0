-- The columns of a line of a list of tasks, in the order that `read_line` expects: of params and error only the
-- beginning, whatever their size. A fragment.
id, type, state, queue, priority, attempts, max_attempts, worker_id, created_at, run_at, claimed_at, lease_until,
finished_at, progress, workflow_id, key, cancel_requested, substr(params, 1, 200),
substr(json_extract(error, '$.type') || ': ' || json_extract(error, '$.message'), 1, 200), {{error_head}}
