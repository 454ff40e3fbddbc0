-- API keys, how much of its rate each has used, and the names under which claims were asked for.
-- compatible: 2
--
-- Of a key's secret only the SHA-256 is here. A rate is a window that begins with the first request after the last one
-- ended; `granted` is what the last request for permits got (see sql/take_permits.sql).
-- `request` is the name that the worker gave the claim that holds the task (see sql/asked.sql). Code that does not know
-- it leaves the name of the claim before; the task then is under another token and most likely another incarnation.

CREATE TABLE dibs_keys (
    id            text   COLLATE "C" PRIMARY KEY,
    name          text   NOT NULL,
    scopes        text   NOT NULL,
    queues        text,
    rate_requests bigint,
    rate_period   bigint,
    digest        text   NOT NULL,
    created_at    bigint NOT NULL,
    created_by    text,
    expires_at    bigint,
    revoked_at    bigint,
    last_used_at  bigint
) WITH (fillfactor = 50);

-- One row for each key, written with every batch of requests: room on the page, and vacuum after few of them.
CREATE TABLE dibs_rates (
    key_id  text   COLLATE "C" PRIMARY KEY,
    ends_at bigint NOT NULL,
    used    bigint NOT NULL,
    granted bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

ALTER TABLE dibs_tasks ADD COLUMN request text;
CREATE INDEX dibs_tasks_requests ON dibs_tasks (worker_id, request)
    WHERE state = 'claimed' AND request IS NOT NULL;
