-- Counts, trends and samples for dashboards and metrics.
-- Locks: none beyond the rows that a statement writes.

-- name: recent
-- Promise: how long the last completed tasks waited and ran, among the newest `reach` of all queues.
-- Parameters: reach, limit, queues. Rows: (waited, ran).
-- Index: dibs_tasks_finished, from its end; never further than `reach`, however rare the queues are.
SELECT claimed_at - ready_at, finished_at - claimed_at
FROM (SELECT queue, ready_at, claimed_at, finished_at FROM dibs_tasks INDEXED BY dibs_tasks_finished
      WHERE state = 'completed' AND finished_at IS NOT NULL
      ORDER BY finished_at DESC LIMIT {{reach}})
WHERE true {{conditions}} LIMIT {{limit}}

-- name: workflow_counts
-- Promise: how many workflows there are in each state, sub-workflows included.
-- Rows: (state, count). Indexes: dibs_workflows_finished and dibs_workflows_running, which have all the columns. The
-- number of the other workflows is the difference to all workflows: a third of the time of grouping the rows.
WITH ended AS MATERIALIZED (
    SELECT state, count(*) AS count FROM dibs_workflows INDEXED BY dibs_workflows_finished
    WHERE finished_at IS NOT NULL GROUP BY state
),
running AS MATERIALIZED (
    SELECT count(*) AS count FROM dibs_workflows INDEXED BY dibs_workflows_running WHERE state = 'running'
)
SELECT state, count FROM ended
UNION ALL SELECT 'running', count FROM running
UNION ALL SELECT 'finalizing', (SELECT count(*) FROM dibs_workflows) - (SELECT count FROM running)
                               - (SELECT coalesce(sum(count), 0) FROM ended)

-- name: failures
-- Promise: of the newest `reach` tasks of the dead letter the last ones, the newest first, each with the beginning of
-- its error as JSON: to parse all of them here would take longer than to read them.
-- Parameters: reach, limit, queues, tags. Rows: (id, type, beginning of the error, finished_at).
-- Index: dibs_tasks_dead, from its end; never further than `reach`, however rare the queues and tags are.
SELECT id, type, {{error_head}}, finished_at
FROM (SELECT id, type, queue, tags, error, finished_at FROM dibs_tasks INDEXED BY dibs_tasks_dead
      WHERE state = 'failed' AND set_aside IS NULL
      ORDER BY finished_at DESC LIMIT {{reach}})
WHERE true {{conditions}} LIMIT {{limit}}

-- fragment: queue_left
-- The queue that the task left with this entry of the history; NULL for an entry that is no move (see `is_move`).
CASE WHEN {{is_move: {{argument}}}} THEN json_extract({{argument}}.detail, '$.queue.from') END
