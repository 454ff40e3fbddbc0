-- Promise: up to `limit` tasks that have been in this final state for longer than `kept` are deleted.
-- For states whose tasks all have the same retention (see prune_walked.sql). Steps are pruned with their workflow (see
-- prune_steps.sql).
-- Parameters: state, kept, limit, now. Rows: history columns. Index: dibs_tasks_finished.
DELETE FROM dibs_tasks
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_finished
             WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND finished_at <= :now - :kept
               AND workflow_id IS NULL
             ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL
