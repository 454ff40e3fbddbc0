-- Promise: up to `limit` sessions past their end are deleted, the oldest first. Parameters: limit, now. Rows: (digest).
-- Index: dibs_sessions_expiry.
DELETE FROM dibs_sessions
WHERE digest IN (SELECT digest FROM dibs_sessions WHERE expires_at <= :now ORDER BY expires_at LIMIT {{limit}})
RETURNING digest
