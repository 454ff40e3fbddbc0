-- Watching: who is signed in to the dashboard, a sample of the depth of every minute, and the trace a task came with.
-- compatible: 2
--
-- Of a session's secret only the SHA-256 is here; its key is looked up again at each request, so that revoking the key
-- ends the session. A sample is written by one of all servers; what is in it is theirs. `trace` is the W3C traceparent
-- of who enqueued the task; code that does not know it leaves it empty.

ALTER TABLE dibs_tasks ADD COLUMN trace TEXT;

CREATE TABLE dibs_sessions (
    digest     TEXT    NOT NULL PRIMARY KEY,
    key_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_sessions_expiry ON dibs_sessions (expires_at);

CREATE TABLE dibs_samples (
    at   INTEGER PRIMARY KEY,
    body TEXT    NOT NULL
) STRICT;
