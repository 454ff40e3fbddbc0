-- Promise: a new workflow, unless a workflow started in the same queues has its key (no row then). Its steps follow
-- in the same transaction.
-- Parameters: root_id, step_of, name, key, key_content, on_failure, queues, allowed, deadline, now. Rows: (id).
-- Index: dibs_workflows_key decides which workflow owns a key. The deadline of a sub-workflow is set when the
-- sub-workflow begins (see begin_workflows.sql).
WITH {{moment}}
INSERT INTO dibs_workflows (root_id, step_of, name, key, key_content, key_queues, on_failure, queues, created_at,
                            allowed, deadline)
SELECT %(root_id)s::bigint, %(step_of)s::bigint, %(name)s::text, %(key)s::text, %(key_content)s::text,
       CASE WHEN %(key)s::text IS NOT NULL THEN %(queues)s::text END,
       %(on_failure)s::text, %(queues)s::text, moment.now, %(allowed)s::bigint,
       CASE WHEN %(step_of)s::bigint IS NULL THEN coalesce(%(deadline)s::bigint, moment.now + %(allowed)s::bigint)
            ELSE %(deadline)s::bigint END
FROM moment
ON CONFLICT (key, key_queues) WHERE key IS NOT NULL DO NOTHING
RETURNING id
