-- Promise: the session, if it has not come to its end. Parameters: digest, now. Rows: (key_id, expires_at).
-- Index: the primary key.
SELECT key_id, expires_at FROM dibs_sessions WHERE digest = :digest AND expires_at > :now
