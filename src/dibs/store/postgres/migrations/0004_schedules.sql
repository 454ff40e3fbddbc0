-- Schedules: tasks that are enqueued at the ticks of a cron expression.
-- compatible: 2

CREATE TABLE dibs_schedules (
    name         text    COLLATE "C" PRIMARY KEY,
    cron         text    NOT NULL,
    timezone     text    NOT NULL DEFAULT 'UTC',
    catch_up     text    NOT NULL CHECK (catch_up IN ('one', 'all', 'none')),
    enabled      boolean NOT NULL DEFAULT true,
    type         text    NOT NULL,
    params       text    NOT NULL,
    queue        text    NOT NULL,
    priority     integer NOT NULL,
    max_attempts integer NOT NULL,
    timeout      bigint,
    backoff_base bigint  NOT NULL,
    backoff_cap  bigint  NOT NULL,
    source       text    NOT NULL CHECK (source IN ('code', 'command')),
    next_at      bigint  NOT NULL,
    last_at      bigint,
    last_task_id bigint,
    last_error   text,
    created_at   bigint  NOT NULL,
    updated_at   bigint  NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX dibs_schedules_due ON dibs_schedules (next_at) WHERE enabled;
