-- Promise: a new workflow, unless a workflow started in the same queues has its key (no row then). Its steps follow
-- in the same transaction.
-- Parameters: root_id, step_of, name, key, key_content, on_failure, queues, allowed, deadline, now. Rows: (id).
-- Index: dibs_workflows_key decides which workflow owns a key. The deadline of a sub-workflow is set when the
-- sub-workflow begins (see begin_workflows.sql).
INSERT INTO dibs_workflows (root_id, step_of, name, key, key_content, key_queues, on_failure, queues, created_at,
                            allowed, deadline)
VALUES (:root_id, :step_of, :name, :key, :key_content, CASE WHEN :key IS NOT NULL THEN :queues END, :on_failure,
        :queues, :now, :allowed,
        CASE WHEN :step_of IS NULL THEN coalesce(:deadline, :now + :allowed) ELSE :deadline END)
ON CONFLICT (key, key_queues) WHERE key IS NOT NULL DO NOTHING
RETURNING id
