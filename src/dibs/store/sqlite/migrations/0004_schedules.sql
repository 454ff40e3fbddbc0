-- Schedules: tasks that are enqueued at the ticks of a cron expression.
-- compatible: 2

CREATE TABLE dibs_schedules (
    name         TEXT    NOT NULL PRIMARY KEY,
    cron         TEXT    NOT NULL,
    timezone     TEXT    NOT NULL DEFAULT 'UTC',
    catch_up     TEXT    NOT NULL CHECK (catch_up IN ('one', 'all', 'none')),
    enabled      INTEGER NOT NULL DEFAULT 1,
    type         TEXT    NOT NULL,
    params       TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    timeout      INTEGER,
    backoff_base INTEGER NOT NULL,
    backoff_cap  INTEGER NOT NULL,
    source       TEXT    NOT NULL CHECK (source IN ('code', 'command')),
    next_at      INTEGER NOT NULL,
    last_at      INTEGER,
    last_task_id INTEGER,
    last_error   TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX dibs_schedules_due ON dibs_schedules (next_at) WHERE enabled;
