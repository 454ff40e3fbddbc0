-- API keys, their rate limits, and browser sessions.
-- Locks: one transaction writes at a time; it holds the lock of the file from its first statement to its commit.

-- fragment: api_key
-- The columns of an API key, in the order that `read_key` expects; the last is how long it still holds.
id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at, revoked_at,
last_used_at, expires_at - :now

-- name: create_key
-- Promise: the key is stored, unless its id is taken (no row then).
-- Parameters: the key's values, expires_in or expires_at, by, now. Rows: key columns.
INSERT INTO dibs_keys (id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at)
VALUES (:id, :name, :scopes, :queues, :rate_requests, :rate_period, :digest, :now, :by,
        coalesce(:expires_at, :now + :expires_in))
ON CONFLICT (id) DO NOTHING
RETURNING {{api_key}}

-- name: get_key
-- Promise: the key with this id, if there is one. Parameters: id, now. Rows: key columns. Index: the primary key.
SELECT {{api_key}} FROM dibs_keys WHERE id = :id

-- name: list_keys
-- Promise: every key, oldest first, also those that expired or were revoked. Parameters: now. Rows: key columns.
SELECT {{api_key}} FROM dibs_keys ORDER BY created_at, id

-- name: revoke_key
-- Promise: nobody may use the key from now on; revoked again, it keeps the time of the first.
-- Parameters: id, now. Rows: key columns; none if there is no such key.
UPDATE dibs_keys SET revoked_at = coalesce(revoked_at, :now) WHERE id = :id RETURNING {{api_key}}

-- name: note_keys_used
-- Promise: these keys were used now. Parameters: ids, now. Rows: none. Index: the primary key.
UPDATE dibs_keys SET last_used_at = :now WHERE id IN (SELECT value FROM json_each(:ids))

-- name: take_permits
-- Promise: the key gets as many of the permits it wants as its window has left; never more in a window than the limit,
-- however many servers ask. Parameters: key_id, requests, period, wanted, now. Rows: (granted, until the window ends).
-- A window begins with the first request after the last one ended. One that ends later than any could (the clock was
-- set back) counts as ended; a minute of grace keeps that apart from a clock that is only corrected.
-- Safe: one statement under the write lock. Every right side reads the row as it was; `granted` is a column because
-- RETURNING sees it only as it is now.
INSERT INTO dibs_rates AS rate (key_id, ends_at, used, granted)
VALUES (:key_id, :now + :period, min(:wanted, :requests), min(:wanted, :requests))
ON CONFLICT (key_id) DO UPDATE SET
    ends_at = CASE WHEN {{rate_ended}} THEN excluded.ends_at ELSE rate.ends_at END,
    used = CASE WHEN {{rate_ended}} THEN excluded.used
                ELSE rate.used + max(0, min(:wanted, :requests - rate.used)) END,
    granted = CASE WHEN {{rate_ended}} THEN excluded.granted ELSE max(0, min(:wanted, :requests - rate.used)) END
RETURNING granted, ends_at - :now

-- fragment: rate_ended
-- The condition that the window of a rate is over. A fragment of `take_permits`.
(rate.ends_at <= :now OR rate.ends_at > :now + :period + 60000000)

-- name: create_session
-- Promise: the session is stored, until `lifetime` from now; the same again changes nothing.
-- Parameters: digest, key_id, lifetime, now. Rows: none. Index: the primary key.
INSERT INTO dibs_sessions (digest, key_id, created_at, expires_at)
VALUES (:digest, :key_id, :now, :now + :lifetime)
ON CONFLICT (digest) DO NOTHING

-- name: get_session
-- Promise: the session, if it has not come to its end. Parameters: digest, now. Rows: (key_id, expires_at).
-- Index: the primary key.
SELECT key_id, expires_at FROM dibs_sessions WHERE digest = :digest AND expires_at > :now

-- name: prune_sessions
-- Promise: up to `limit` sessions past their end are deleted, the oldest first. Parameters: limit, now. Rows: (digest).
-- Index: dibs_sessions_expiry.
DELETE FROM dibs_sessions
WHERE digest IN (SELECT digest FROM dibs_sessions WHERE expires_at <= :now ORDER BY expires_at LIMIT {{limit}})
RETURNING digest
