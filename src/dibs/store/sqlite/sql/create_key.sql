-- Promise: the key is stored, unless its id is taken (no row then).
-- Parameters: the key's values, expires_in or expires_at, by, now. Rows: key columns.
INSERT INTO dibs_keys (id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at)
VALUES (:id, :name, :scopes, :queues, :rate_requests, :rate_period, :digest, :now, :by,
        coalesce(:expires_at, :now + :expires_in))
ON CONFLICT (id) DO NOTHING
RETURNING {{api_key}}
