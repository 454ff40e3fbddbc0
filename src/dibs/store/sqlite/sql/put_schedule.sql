-- Promise: the schedule is stored as given, or changed to it; the same again changes nothing (no row then).
-- A changed cron or time zone, and enabling, begin anew at the given next_at; other changes keep the tick that is next.
-- Parameters: the schedule's values (enabled NULL: as it is, true for a new one), now. Rows: schedule columns.
INSERT INTO dibs_schedules AS known (
    name, cron, timezone, catch_up, enabled, type, params, queue, priority, max_attempts, timeout, backoff_base,
    backoff_cap, source, next_at, created_at, updated_at
) VALUES (
    :name, :cron, :timezone, :catch_up, coalesce(:enabled, 1), :type, :params, :queue, :priority, :max_attempts,
    :timeout, :backoff_base, :backoff_cap, :source, :next_at, :now, :now
)
ON CONFLICT (name) DO UPDATE SET
    cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
    enabled = coalesce(:enabled, known.enabled), type = excluded.type, params = excluded.params,
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, backoff_base = excluded.backoff_base, backoff_cap = excluded.backoff_cap,
    source = excluded.source, updated_at = excluded.updated_at,
    next_at = CASE WHEN known.cron = excluded.cron AND known.timezone = excluded.timezone
                        AND known.enabled >= coalesce(:enabled, 0)
                   THEN known.next_at ELSE excluded.next_at END
WHERE (known.cron, known.timezone, known.catch_up, known.enabled, known.type, known.params, known.queue,
       known.priority, known.max_attempts, known.timeout, known.backoff_base, known.backoff_cap, known.source)
    IS NOT (excluded.cron, excluded.timezone, excluded.catch_up, coalesce(:enabled, known.enabled), excluded.type,
            excluded.params, excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout,
            excluded.backoff_base, excluded.backoff_cap, excluded.source)
RETURNING {{schedule}}
