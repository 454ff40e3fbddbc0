-- Promise: the session is stored, until `lifetime` from now; the same again changes nothing.
-- Parameters: digest, key_id, lifetime, now. Rows: none. Index: the primary key.
WITH {{moment}}
INSERT INTO dibs_sessions (digest, key_id, created_at, expires_at)
SELECT %(digest)s, %(key_id)s, moment.now, moment.now + %(lifetime)s::bigint FROM moment
ON CONFLICT (digest) DO NOTHING
