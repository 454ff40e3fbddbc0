-- The columns of a task, in the order that `read_task` expects. A fragment.
id, type, queue, state, params, priority, attempts, max_attempts, token, created_at, run_at, type_version, timeout,
claimed_at, lease_until, finished_at, worker_id, key, cancel_requested, progress, progress_message, result, error,
dropped, workflow_id, trace, set_aside
