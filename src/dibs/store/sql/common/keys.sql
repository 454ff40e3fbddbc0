-- API keys, their rate limits, and browser sessions.
-- Locks: PostgreSQL locks the roots of workflow trees in the order of their ids, then tasks in the order of their ids.
-- SQLite locks the file for each transaction that writes.

-- fragment: api_key
-- The columns of an API key, in the order that `read_key` expects; the last is the time until it expires.
id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at, revoked_at,
last_used_at, expires_at - {{now}}

-- name: create_key
-- Promise: the key is stored, unless its id is taken (no row then).
-- Parameters: the key's values, expires_in or expires_at, by, now. Rows: key columns.
{{with_moment}}
INSERT INTO dibs_keys (id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at)
VALUES (:id, :name, :scopes, :queues, :rate_requests, :rate_period, :digest, {{now}}, :by,
        coalesce(CAST(:expires_at AS bigint), {{now}} + CAST(:expires_in AS bigint)))
ON CONFLICT (id) DO NOTHING
RETURNING {{api_key}}

-- name: get_key
-- Promise: the key with this id, if it exists. Parameters: id, now. Rows: key columns. Index: the primary key.
{{with_moment}}
SELECT {{api_key}} FROM dibs_keys WHERE id = :id

-- name: list_keys
-- Promise: every key, oldest first, expired and revoked keys too. Parameters: now. Rows: key columns.
{{with_moment}}
SELECT {{api_key}} FROM dibs_keys ORDER BY created_at, id

-- name: revoke_key
-- Promise: the key is refused from now on; a key that was revoked before keeps the time of that.
-- Parameters: id, now. Rows: key columns; none if there is no such key.
{{with_moment}}
UPDATE dibs_keys SET revoked_at = coalesce(revoked_at, {{now}}) WHERE id = :id RETURNING {{api_key}}

-- name: note_keys_used
-- Promise: these keys were used now. Parameters: ids, now. Rows: none. Index: the primary key.
-- Safe: the rows are locked in one order, so that two servers that note the same keys cannot deadlock.
{{with_moment}}
UPDATE dibs_keys SET last_used_at = {{now}}
WHERE id {{in_select: SELECT id FROM dibs_keys WHERE id {{in_text: ids}} ORDER BY id {{lock_rows}}}}

-- name: create_session
-- Promise: the session is stored, until `lifetime` from now; an equal session changes nothing.
-- Parameters: digest, key_id, lifetime, now. Rows: none. Index: the primary key.
{{with_moment}}
INSERT INTO dibs_sessions (digest, key_id, created_at, expires_at)
VALUES (:digest, :key_id, {{now}}, {{now}} + :lifetime)
ON CONFLICT (digest) DO NOTHING

-- name: get_session
-- Promise: the session, if it has not expired. Parameters: digest, now. Rows: (key_id, expires_at).
-- Index: the primary key.
{{with_moment}}
SELECT key_id, expires_at FROM dibs_sessions WHERE digest = :digest AND expires_at > {{now}}

-- name: end_session
-- Promise: the session is deleted. Parameters: digest. Rows: (digest); none if there was none. Index: the primary key.
DELETE FROM dibs_sessions WHERE digest = :digest RETURNING digest

-- name: prune_sessions
-- Promise: up to `limit` sessions past their end are deleted, the oldest first. Parameters: limit, now. Rows: (digest).
-- Index: dibs_sessions_expiry. Safe: rows that another prune is deleting are skipped.
{{with_moment}}
DELETE FROM dibs_sessions
WHERE digest {{in_select: SELECT digest FROM dibs_sessions WHERE expires_at <= {{now}}
                          ORDER BY expires_at LIMIT {{limit}} {{skip_locked}}}}
RETURNING digest
