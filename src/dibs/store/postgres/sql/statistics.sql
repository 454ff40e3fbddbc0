-- Counts, trends and samples for dashboards and metrics.
-- Locks: none beyond the rows that a statement writes.

-- name: recent
-- Promise: how long the last completed tasks waited and ran, among the newest `reach` of all queues.
-- Parameters: reach, limit, queues. Rows: (waited, ran).
-- Index: dibs_tasks_finished, from its end; never further than `reach`, however rare the queues are.
SELECT claimed_at - ready_at, finished_at - claimed_at
FROM (SELECT queue, ready_at, claimed_at, finished_at FROM dibs_tasks
      WHERE state = 'completed' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT {{reach}}) AS task
WHERE true {{conditions}} ORDER BY finished_at DESC LIMIT {{limit}}

-- name: workflow_counts
-- Promise: how many workflows there are in each state, sub-workflows included.
-- Rows: (state, count).
SELECT state, count(*) FROM dibs_workflows GROUP BY state

-- name: failures
-- Promise: of the newest `reach` tasks of the dead letter the last ones, the newest first, each with the beginning of
-- its error as JSON, without the traceback: to parse all of them here would take ten times as long as to read them.
-- Parameters: reach, limit, queues, tags. Rows: (id, type, beginning of the error, finished_at).
-- Index: dibs_tasks_dead, from its end; never further than `reach`, however rare the queues and tags are.
SELECT task.id, task.type, {{error_head}}, task.finished_at
FROM (SELECT id, type, queue, tags, error, finished_at FROM dibs_tasks
      WHERE state = 'failed' AND set_aside IS NULL ORDER BY finished_at DESC LIMIT {{reach}}) AS task
WHERE true {{conditions}} ORDER BY task.finished_at DESC LIMIT {{limit}}

-- name: gaps
-- Promise: the ids that are missing between the entries after this one, up to `limit` entries: they were rolled back,
-- pruned, or are still to be committed. Parameters: after, limit. Rows: (first, last), in order.
-- Index: the primary key of the history alone.
SELECT before + 1, id - 1
FROM (SELECT id, lag(id, 1, :after::bigint) OVER (ORDER BY id) AS before
      FROM (SELECT id FROM dibs_history WHERE id > :after ORDER BY id LIMIT {{limit}}) AS seen) AS pair
WHERE id > before + 1 ORDER BY id

-- name: filled
-- Promise: the ids within these gaps that are visible now, up to `limit`. Parameters: firsts, lasts, limit.
-- Rows: (id), in order. Index: the primary key of the history, once for each gap.
SELECT past.id
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS gap (first, last)
CROSS JOIN LATERAL (SELECT id FROM dibs_history WHERE id BETWEEN gap.first AND gap.last) AS past
ORDER BY past.id LIMIT {{limit}}

-- name: late_moves
-- Promise: `moves`, for the entries within these gaps. Parameters: firsts, lasts, limit.
-- Rows: as of `moves`. Indexes: the primary key of the history, once for each gap; those of `moves`.
SELECT queue, event, from_state, to_state, from_queue, count(*), max(id)
FROM (SELECT past.id, past.event, past.from_state, past.to_state, {{queue_after}} AS queue,
             {{queue_left: past}} AS from_queue
      FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS gap (first, last)
      CROSS JOIN LATERAL (SELECT id, task_id, event, from_state, to_state, detail FROM dibs_history
                          WHERE id BETWEEN gap.first AND gap.last) AS past
      ORDER BY past.id LIMIT {{limit}}) AS moved
GROUP BY queue, event, from_state, to_state, from_queue

-- name: database_health
-- Promise: how many bytes the tables of dibs take with their indexes, and for how many seconds the oldest transaction
-- of this database has been open, prepared ones included; of other users' only with the role pg_read_all_stats.
-- Rows: (bytes, seconds).
SELECT
    (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
     WHERE relkind = 'r' AND starts_with(relname::text, 'dibs_') AND pg_table_is_visible(oid)),
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(begun)), 0)::float8
     FROM (SELECT xact_start AS begun FROM pg_stat_activity
           WHERE datname = current_database() AND backend_type = 'client backend'
           UNION ALL
           SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) AS open_ones)

-- fragment: queue_left
-- The queue that the task left with this entry of the history; NULL for an entry that is no move (see `is_move`).
CASE WHEN {{is_move: {{argument}}}} THEN {{argument}}.detail::json #>> '{queue,from}' END
