-- Promise: up to `limit` sessions past their end are deleted, the oldest first. Parameters: limit, now. Rows: (digest).
-- Index: dibs_sessions_expiry. Safe: rows that another prune is deleting are skipped.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT digest FROM dibs_sessions WHERE expires_at <= (SELECT now FROM moment)
    ORDER BY expires_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
)
DELETE FROM dibs_sessions AS session USING old WHERE session.digest = old.digest RETURNING session.digest
