-- Promise: the session, if it has not come to its end. Parameters: digest, now. Rows: (key_id, expires_at).
-- Index: the primary key.
WITH {{moment}}
SELECT key_id, expires_at FROM dibs_sessions, moment WHERE digest = %(digest)s AND expires_at > moment.now
