-- Promise: up to `limit` workflows that have been in this final state for longer than `kept`, without sub-workflows.
-- Parameters: state, kept, limit, now. Rows: (id). Index: dibs_workflows_finished.
SELECT id FROM dibs_workflows INDEXED BY dibs_workflows_finished
WHERE finished_at IS NOT NULL AND state = :state AND finished_at <= :now - :kept AND step_of IS NULL
ORDER BY finished_at LIMIT {{limit}}
