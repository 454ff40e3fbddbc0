-- The columns of an API key, in the order that `read_key` expects; the last is how long it still holds. A fragment.
id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at, revoked_at,
last_used_at, expires_at - :now
