-- Promise: up to `limit` recorded wishes to finalize that are older than `kept` are deleted, oldest first.
-- Parameters: kept, limit, now. Rows: (id).
DELETE FROM dibs_finalization_attempts
WHERE id IN (SELECT id FROM dibs_finalization_attempts ORDER BY id LIMIT {{limit}}) AND at <= :now - :kept
RETURNING id
