-- Promise: the key is stored, unless its id is taken (no row then).
-- Parameters: the key's values, expires_in or expires_at, by, now. Rows: key columns.
WITH {{moment}}
INSERT INTO dibs_keys (id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at)
SELECT %(id)s, %(name)s, %(scopes)s, %(queues)s, %(rate_requests)s::bigint, %(rate_period)s::bigint, %(digest)s,
       moment.now, %(by)s, coalesce(%(expires_at)s::bigint, moment.now + %(expires_in)s::bigint)
FROM moment
ON CONFLICT (id) DO NOTHING
RETURNING {{api_key}}
