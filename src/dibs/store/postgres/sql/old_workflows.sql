-- Promise: up to `limit` workflows of this name and list of queues that have been in this final state for longer than
-- `kept`, without sub-workflows. Parameters: state, name, queues (the first 300 characters), kept, limit, now.
-- Rows: (id). Index: dibs_workflows_kept, in its order: the rows are compared as a range of it, because PostgreSQL
-- expects few rows of an equal name and list of queues, and would read and sort all of them.
-- Safe: the workflows are locked, so that no client retries them meanwhile; those that are locked already are skipped.
WITH {{moment}}
SELECT id FROM dibs_workflows
WHERE finished_at IS NOT NULL AND step_of IS NULL AND state = %(state)s
  AND (name, left(queues, 300) COLLATE "C", finished_at) >= (%(name)s COLLATE "C", %(queues)s, 0)
  AND (name, left(queues, 300) COLLATE "C", finished_at)
      <= (%(name)s COLLATE "C", %(queues)s, (SELECT now FROM moment) - %(kept)s)
ORDER BY name, left(queues, 300) COLLATE "C", finished_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
