-- The columns of a line of a list of tasks, in the order that `read_line` expects: of params and error only the
-- beginning, whatever their size. A fragment.
task.id, task.type, task.state, task.queue, task.priority, task.attempts, task.max_attempts, task.worker_id,
task.created_at, task.run_at, task.claimed_at, task.lease_until, task.finished_at, task.progress, task.workflow_id,
task.key, task.cancel_requested, left(task.params, 200),
left((task.error::json ->> 'type') || ': ' || (task.error::json ->> 'message'), 200), {{error_head}}
