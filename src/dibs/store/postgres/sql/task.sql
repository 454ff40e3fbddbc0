-- The columns of a task, in the order that `read_task` expects. A fragment; the table's alias is `task`.
task.id, task.type, task.queue, task.state, task.params, task.priority, task.attempts, task.max_attempts, task.token,
task.created_at, task.run_at, task.type_version, task.timeout, task.claimed_at, task.lease_until, task.finished_at,
task.worker_id, task.key, task.cancel_requested, task.progress, task.progress_message, task.result, task.error,
task.dropped, task.workflow_id, task.trace, task.set_aside
