-- API keys, their rate limits, and browser sessions.
-- Locks: the roots of workflow trees in the order of their ids (hold_workflows), then tasks in the order of their ids (in_turn,
-- hold_tasks); a statement that takes what it finds passes over rows that are locked (SKIP LOCKED).

-- fragment: api_key
-- The columns of an API key, in the order that `read_key` expects; the last is how long it still holds.
id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at, revoked_at,
last_used_at, expires_at - (SELECT now FROM moment)

-- name: create_key
-- Promise: the key is stored, unless its id is taken (no row then).
-- Parameters: the key's values, expires_in or expires_at, by, now. Rows: key columns.
WITH {{moment}}
INSERT INTO dibs_keys (id, name, scopes, queues, rate_requests, rate_period, digest, created_at, created_by, expires_at)
SELECT :id, :name, :scopes, :queues, :rate_requests::bigint, :rate_period::bigint, :digest,
       moment.now, :by, coalesce(:expires_at::bigint, moment.now + :expires_in::bigint)
FROM moment
ON CONFLICT (id) DO NOTHING
RETURNING {{api_key}}

-- name: get_key
-- Promise: the key with this id, if there is one. Parameters: id, now. Rows: key columns. Index: the primary key.
WITH {{moment}} SELECT {{api_key}} FROM dibs_keys WHERE id = :id

-- name: list_keys
-- Promise: every key, oldest first, also those that expired or were revoked. Parameters: now. Rows: key columns.
WITH {{moment}} SELECT {{api_key}} FROM dibs_keys ORDER BY created_at, id

-- name: revoke_key
-- Promise: nobody may use the key from now on; revoked again, it keeps the time of the first.
-- Parameters: id, now. Rows: key columns; none if there is no such key.
WITH {{moment}}
UPDATE dibs_keys SET revoked_at = coalesce(revoked_at, (SELECT now FROM moment)) WHERE id = :id RETURNING {{api_key}}

-- name: note_keys_used
-- Promise: these keys were used now. Parameters: ids, now. Rows: none. Index: the primary key.
-- Safe: the rows are locked in one order, so that two servers that note the same keys cannot deadlock.
WITH {{moment}},
used AS MATERIALIZED (SELECT id FROM dibs_keys WHERE id = ANY(:ids::text[]) ORDER BY id FOR UPDATE)
UPDATE dibs_keys SET last_used_at = (SELECT now FROM moment) WHERE id IN (SELECT id FROM used)

-- name: take_permits
-- Promise: the key gets as many of the permits it wants as its window has left; never more in a window than the limit,
-- however many servers ask. Parameters: key_id, requests, period, wanted, now. Rows: (granted, until the window ends).
-- A window begins with the first request after the last one ended. One that ends later than any could (the clock was
-- set back) counts as ended; a minute of grace keeps that apart from a statement that waited for its row while another
-- began a window, and so knows an older time than the row.
-- Safe: one statement. The second of two waits for the first one's row and reads it as that one left it; every right
-- side reads the row as it was before. `granted` is a column because RETURNING sees it only as it is now.
WITH {{moment}}
INSERT INTO dibs_rates AS rate (key_id, ends_at, used, granted)
SELECT :key_id, moment.now + :period::bigint, least(:wanted::bigint, :requests::bigint),
       least(:wanted::bigint, :requests::bigint)
FROM moment
ON CONFLICT (key_id) DO UPDATE SET
    ends_at = CASE WHEN {{rate_ended}} THEN excluded.ends_at ELSE rate.ends_at END,
    used = CASE WHEN {{rate_ended}} THEN excluded.used
                ELSE rate.used + greatest(0, least(:wanted::bigint, :requests::bigint - rate.used)) END,
    granted = CASE WHEN {{rate_ended}} THEN excluded.granted
                   ELSE greatest(0, least(:wanted::bigint, :requests::bigint - rate.used)) END
RETURNING granted, ends_at - (SELECT now FROM moment)

-- fragment: rate_ended
-- The condition that the window of a rate is over. A fragment of `take_permits`; `excluded` is the window that would
-- begin now.
(rate.ends_at <= excluded.ends_at - :period::bigint OR rate.ends_at > excluded.ends_at + 60000000)

-- name: create_session
-- Promise: the session is stored, until `lifetime` from now; the same again changes nothing.
-- Parameters: digest, key_id, lifetime, now. Rows: none. Index: the primary key.
WITH {{moment}}
INSERT INTO dibs_sessions (digest, key_id, created_at, expires_at)
SELECT :digest, :key_id, moment.now, moment.now + :lifetime::bigint FROM moment
ON CONFLICT (digest) DO NOTHING

-- name: get_session
-- Promise: the session, if it has not come to its end. Parameters: digest, now. Rows: (key_id, expires_at).
-- Index: the primary key.
WITH {{moment}}
SELECT key_id, expires_at FROM dibs_sessions, moment WHERE digest = :digest AND expires_at > moment.now

-- name: prune_sessions
-- Promise: up to `limit` sessions past their end are deleted, the oldest first. Parameters: limit, now. Rows: (digest).
-- Index: dibs_sessions_expiry. Safe: rows that another prune is deleting are skipped.
WITH {{moment}},
old AS MATERIALIZED (
    SELECT digest FROM dibs_sessions WHERE expires_at <= (SELECT now FROM moment)
    ORDER BY expires_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
)
DELETE FROM dibs_sessions AS session USING old WHERE session.digest = old.digest RETURNING session.digest
