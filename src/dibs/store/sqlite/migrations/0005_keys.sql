-- API keys, how much of its rate each has used, and the names under which claims were asked for.
-- compatible: 2
--
-- Of a key's secret only the SHA-256 is here. A rate is a window that begins with the first request after the last one
-- ended; `granted` is what the last request for permits got (see sql/take_permits.sql).
-- `request` is the name that the worker gave the claim that holds the task (see sql/asked.sql). Code that does not know
-- it leaves the name of the claim before; the task then is under another token and most likely another incarnation.

CREATE TABLE dibs_keys (
    id            TEXT    NOT NULL PRIMARY KEY,
    name          TEXT    NOT NULL,
    scopes        TEXT    NOT NULL,
    queues        TEXT,
    rate_requests INTEGER,
    rate_period   INTEGER,
    digest        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    created_by    TEXT,
    expires_at    INTEGER,
    revoked_at    INTEGER,
    last_used_at  INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE dibs_rates (
    key_id  TEXT    NOT NULL PRIMARY KEY,
    ends_at INTEGER NOT NULL,
    used    INTEGER NOT NULL,
    granted INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE dibs_tasks ADD COLUMN request TEXT;
CREATE INDEX dibs_tasks_requests ON dibs_tasks (worker_id, request)
    WHERE state = 'claimed' AND request IS NOT NULL;
