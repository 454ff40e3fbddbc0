-- Promise: the claim is given up, if this processor has it. Parameters: id, processor. Rows: (released).
-- A function, so that other languages can release as well (see migrations/0006_workflows.sql).
SELECT 1 FROM dibs_release_finalization(%(id)s::bigint, %(processor)s::text) AS released WHERE released
