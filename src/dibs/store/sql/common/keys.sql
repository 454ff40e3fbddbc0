-- API keys, their rate limits, and browser sessions.
-- Locks: those of the engine, see the file of the same theme there.

-- name: end_session
-- Promise: the session is over. Parameters: digest. Rows: (digest); none if there was none. Index: the primary key.
DELETE FROM dibs_sessions WHERE digest = :digest RETURNING digest
