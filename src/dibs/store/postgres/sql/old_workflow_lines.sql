-- Promise: every name and list of queues that has workflows in this final state, with the age of the workflow that ended
-- first. Sub-workflows are pruned with their root.
-- Parameters: state, now. Rows: (name, first 300 characters of the list of queues, age in microseconds).
-- Index: dibs_workflows_kept, one probe for each row, however many workflows there are.
WITH RECURSIVE {{moment}},
line (name, queues, finished_at) AS (
    (SELECT name, left(queues, 300) COLLATE "C", finished_at FROM dibs_workflows
     WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = %(state)s
     ORDER BY name, left(queues, 300) COLLATE "C", finished_at LIMIT 1)
    UNION ALL
    SELECT next.name, next.queues, next.finished_at
    FROM line CROSS JOIN LATERAL (
        SELECT name, left(flow.queues, 300) COLLATE "C" AS queues, finished_at FROM dibs_workflows AS flow
        WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = %(state)s
          AND (name, left(flow.queues, 300) COLLATE "C") > (line.name, line.queues)
        ORDER BY name, left(flow.queues, 300) COLLATE "C", finished_at LIMIT 1) AS next
)
SELECT line.name, line.queues, moment.now - line.finished_at FROM line, moment
