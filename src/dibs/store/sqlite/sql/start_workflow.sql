-- Promise: a new workflow, unless its key is taken (no row then). Its steps follow in the same transaction.
-- Parameters: root_id, step_of, name, key, key_content, on_failure, queues, allowed, deadline, now. Rows: (id).
-- Index: dibs_workflows_key decides who owns a key. A sub-workflow's time begins with it (see begin_workflows.sql).
INSERT INTO dibs_workflows (root_id, step_of, name, key, key_content, on_failure, queues, created_at, allowed, deadline)
VALUES (:root_id, :step_of, :name, :key, :key_content, :on_failure, :queues, :now, :allowed,
        CASE WHEN :step_of IS NULL THEN coalesce(:deadline, :now + :allowed) ELSE :deadline END)
ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING
RETURNING id
