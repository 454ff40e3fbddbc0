-- Promise: up to `limit` workflows that have been in this final state for longer than `kept`, without sub-workflows.
-- Parameters: state, kept, limit, now. Rows: (id). Index: dibs_workflows_finished.
-- Safe: they are locked, so nobody retries them meanwhile; those that somebody holds are skipped.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE finished_at IS NOT NULL AND state = %(state)s AND finished_at <= (SELECT now FROM moment) - %(kept)s
  AND step_of IS NULL
ORDER BY finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
