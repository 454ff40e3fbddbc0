-- Promise: up to `limit` samples from before this moment are deleted, the oldest first.
-- Parameters: before, limit. Rows: (at). Index: the primary key.
DELETE FROM dibs_samples
WHERE at IN (SELECT at FROM dibs_samples WHERE at < :before ORDER BY at LIMIT {{limit}})
RETURNING at
