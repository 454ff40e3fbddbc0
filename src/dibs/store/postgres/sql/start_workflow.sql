-- Promise: a new workflow, unless its key is taken (no row then). Its steps follow in the same transaction.
-- Parameters: root_id, step_of, name, key, key_content, on_failure, queues, allowed, deadline, now. Rows: (id).
-- Index: dibs_workflows_key decides who owns a key. A sub-workflow's time begins with it (see begin_workflows.sql).
WITH {{moment}}
INSERT INTO dibs_workflows (root_id, step_of, name, key, key_content, on_failure, queues, created_at, allowed, deadline)
SELECT %(root_id)s::bigint, %(step_of)s::bigint, %(name)s::text, %(key)s::text, %(key_content)s::text,
       %(on_failure)s::text, %(queues)s::text, moment.now, %(allowed)s::bigint,
       CASE WHEN %(step_of)s::bigint IS NULL THEN coalesce(%(deadline)s::bigint, moment.now + %(allowed)s::bigint)
            ELSE %(deadline)s::bigint END
FROM moment
ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING
RETURNING id
