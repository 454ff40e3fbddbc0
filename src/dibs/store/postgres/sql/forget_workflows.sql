-- Promise: these trees of workflows are gone. Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_workflows
WHERE id = ANY (ARRAY(SELECT id FROM dibs_workflows WHERE id = ANY(%(ids)s::bigint[]) UNION ALL
                              SELECT id FROM dibs_workflows WHERE root_id = ANY(%(ids)s::bigint[])))
