-- Promise: these trees have no steps any more, also where programs that do not know workflows have pruned the tasks.
-- Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_steps
WHERE workflow_id = ANY (ARRAY(SELECT id FROM dibs_workflows WHERE id = ANY(%(ids)s::bigint[]) UNION ALL
                              SELECT id FROM dibs_workflows WHERE root_id = ANY(%(ids)s::bigint[])))
