-- Promise: the session is stored, until `lifetime` from now; the same again changes nothing.
-- Parameters: digest, key_id, lifetime, now. Rows: none. Index: the primary key.
INSERT INTO dibs_sessions (digest, key_id, created_at, expires_at)
VALUES (:digest, :key_id, :now, :now + :lifetime)
ON CONFLICT (digest) DO NOTHING
