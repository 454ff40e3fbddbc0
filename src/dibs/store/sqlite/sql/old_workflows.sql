-- Promise: up to `limit` workflows of this name and list of queues that have been in this final state for longer than
-- `kept`, without sub-workflows. Parameters: state, name, queues (the first 300 characters), kept, limit, now.
-- Rows: (id). Index: dibs_workflows_kept.
SELECT id FROM dibs_workflows INDEXED BY dibs_workflows_kept
WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = :state AND name = :name
  AND substr(queues, 1, 300) = :queues AND finished_at <= :now - :kept
ORDER BY finished_at LIMIT {{limit}}
