-- Promise: these trees of workflows are gone. Parameters: ids (of the roots). Rows: none.
DELETE FROM dibs_workflows
WHERE id IN (SELECT id FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(:ids)) UNION ALL
                       SELECT id FROM dibs_workflows WHERE root_id IN (SELECT value FROM json_each(:ids)))
