-- Promise: of the tasks in this final state that finished after one moment and up to another, up to `limit` are deleted
-- that are past their own retention: by the rule for their type, else for their queue, else `kept`. A rule without a
-- retention (NULL) keeps for ever. Steps are pruned with their workflow (see prune_steps.sql).
-- Parameters: state, after, until, shortest (retention in the state), kept (NULL: for ever), limit, now.
-- Rows: history columns, finished_at. Index: dibs_tasks_finished, between the two moments; the rules by their key.
-- Safe: the write lock is held: state, time and rules are compared in the statement that deletes.
DELETE FROM dibs_tasks
WHERE id IN (SELECT task.id FROM dibs_tasks AS task INDEXED BY dibs_tasks_finished
             LEFT JOIN dibs_retention AS of_type
                 ON of_type.records = :state AND of_type.scope = 'type' AND of_type.name = task.type
             LEFT JOIN dibs_retention AS of_queue
                 ON of_queue.records = :state AND of_queue.scope = 'queue' AND of_queue.name = task.queue
             WHERE task.state IN ('completed', 'failed', 'cancelled') AND task.state = :state
               AND task.finished_at > :after AND task.finished_at <= min(:until, :now - :shortest)
               AND task.workflow_id IS NULL
               AND task.finished_at <= :now - CASE WHEN of_type.name IS NOT NULL THEN of_type.kept
                                                   WHEN of_queue.name IS NOT NULL THEN of_queue.kept ELSE :kept END
             ORDER BY task.finished_at LIMIT {{limit}})
RETURNING id, 'pruned', state, state, NULL, token, NULL, finished_at
