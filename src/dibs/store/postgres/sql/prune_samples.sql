-- Promise: up to `limit` samples from before this moment are deleted, the oldest first.
-- Parameters: before, limit. Rows: (at). Index: the primary key. Safe: rows that another prune is deleting are skipped.
WITH old AS MATERIALIZED (
    SELECT at FROM dibs_samples WHERE at < %(before)s ORDER BY at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
)
DELETE FROM dibs_samples AS sample USING old WHERE sample.at = old.at RETURNING sample.at
