-- Promise: up to `limit` tasks of this queue and type that have been in this final state for longer than `kept` are
-- deleted. Steps are pruned with their workflow (see prune_steps.sql).
-- Parameters: state, queue, type, kept, limit, now. Rows: history columns. Index: dibs_tasks_kept.
DELETE FROM dibs_tasks
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_kept
             WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND workflow_id IS NULL
               AND queue = :queue AND type = :type AND finished_at <= :now - :kept
             ORDER BY finished_at LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL
