-- Promise: every name and list of queues that has workflows in this final state, with the age of the workflow that ended
-- first. Sub-workflows are pruned with their root.
-- Parameters: state, now. Rows: (name, first 300 characters of the list of queues, age in microseconds).
-- Index: dibs_workflows_kept, two probes for each row, however many workflows there are: the next list
-- of queues of the name, else the next name. SQLite would read every workflow of a line to find the next line by
-- (name, queues) > (:name, :queues).
WITH RECURSIVE line (name, queues, finished_at) AS (
    SELECT name, queues, finished_at
    FROM (SELECT name, substr(queues, 1, 300) AS queues, finished_at FROM dibs_workflows INDEXED BY dibs_workflows_kept
          WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
          ORDER BY name, substr(queues, 1, 300), finished_at LIMIT 1)
    UNION ALL
    SELECT next.name, substr(next.queues, 1, 300), next.finished_at
    FROM line JOIN dibs_workflows AS next ON next.id = coalesce(
        (SELECT id FROM dibs_workflows AS flow INDEXED BY dibs_workflows_kept
         WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state
           AND name = line.name AND substr(flow.queues, 1, 300) > line.queues
         ORDER BY substr(flow.queues, 1, 300), finished_at LIMIT 1),
        (SELECT id FROM dibs_workflows AS flow INDEXED BY dibs_workflows_kept
         WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state AND name > line.name
         ORDER BY name, substr(flow.queues, 1, 300), finished_at LIMIT 1))
)
SELECT name, queues, :now - finished_at FROM line
