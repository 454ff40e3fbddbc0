-- Promise: the recorded wishes to finalize the workflows of these trees are gone. Parameters: ids (of the roots).
-- Rows: none.
DELETE FROM dibs_finalization_attempts
WHERE workflow_id = ANY (ARRAY(SELECT id FROM dibs_workflows WHERE id = ANY(%(ids)s::bigint[]) UNION ALL
                              SELECT id FROM dibs_workflows WHERE root_id = ANY(%(ids)s::bigint[])))
