-- The columns of a schedule, in the order in which Python reads them. A fragment.
name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
backoff_cap, source, next_at, created_at, updated_at, last_at, last_task_id, last_error
