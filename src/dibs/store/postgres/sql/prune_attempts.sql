-- Promise: up to `limit` recorded wishes to finalize that are older than `kept` are deleted, oldest first.
-- Parameters: kept, limit, now. Rows: (id).
WITH {{moment}}
DELETE FROM dibs_finalization_attempts
WHERE id = ANY (ARRAY(SELECT id FROM dibs_finalization_attempts ORDER BY id LIMIT {{limit}}))
  AND at <= (SELECT now FROM moment) - %(kept)s
RETURNING id
