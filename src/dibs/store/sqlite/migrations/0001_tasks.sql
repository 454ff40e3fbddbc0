-- Tasks, their history, and the queues that hold them.
--
-- Times are integer microseconds since 1970 (UTC). AUTOINCREMENT, because a pruned task's id must never come
-- back: a late worker could then finish a stranger's task with an old (id, token).

CREATE TABLE dibs_tasks (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    type             TEXT    NOT NULL,
    type_version     INTEGER,
    queue            TEXT    NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('scheduled', 'blocked', 'pending', 'claimed',
                                                       'completed', 'failed', 'cancelled')),
    priority         INTEGER NOT NULL,
    params           TEXT    NOT NULL,
    attempts         INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL,
    attempts_left    INTEGER GENERATED ALWAYS AS (max_attempts - attempts) VIRTUAL,
    token            INTEGER NOT NULL DEFAULT 0,
    timeout          INTEGER,
    backoff_base     INTEGER NOT NULL,
    backoff_cap      INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    ready_at         INTEGER,
    claimed_at       INTEGER,
    lease_until      INTEGER,
    finished_at      INTEGER,
    worker_id        TEXT,
    incarnation      TEXT,
    key              TEXT,
    key_content      TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    progress         INTEGER,
    progress_message TEXT,
    result           TEXT,
    error            TEXT,
    random_key       REAL,
    weighted_key     REAL
) STRICT;

-- One index for each order of claiming; only pending rows are in them, so neither scheduled nor finished tasks
-- can slow a claim. The first three columns name a line (see sql/lines.sql).
CREATE INDEX dibs_tasks_by_priority ON dibs_tasks (queue, type, attempts_left, priority DESC, id)
    WHERE state = 'pending';
CREATE INDEX dibs_tasks_by_priority_lifo ON dibs_tasks (queue, type, attempts_left, priority, id)
    WHERE state = 'pending';
CREATE INDEX dibs_tasks_by_age ON dibs_tasks (queue, type, attempts_left, id)
    WHERE state = 'pending';
CREATE INDEX dibs_tasks_by_random ON dibs_tasks (queue, type, attempts_left, random_key)
    WHERE state = 'pending';
CREATE INDEX dibs_tasks_by_weight ON dibs_tasks (queue, type, attempts_left, weighted_key)
    WHERE state = 'pending';

CREATE INDEX dibs_tasks_due ON dibs_tasks (run_at) WHERE state = 'scheduled';
CREATE INDEX dibs_tasks_leases ON dibs_tasks (lease_until) WHERE state = 'claimed';
CREATE INDEX dibs_tasks_finished ON dibs_tasks (state, finished_at)
    WHERE state IN ('completed', 'failed', 'cancelled');
CREATE UNIQUE INDEX dibs_tasks_key ON dibs_tasks (key) WHERE key IS NOT NULL;

-- How far the random and the weighted race of a line have run (see sql/pick_race.sql). Only claims in these orders
-- write here.
CREATE TABLE dibs_races (
    kind          TEXT    NOT NULL,
    queue         TEXT    NOT NULL,
    type          TEXT    NOT NULL,
    attempts_left INTEGER NOT NULL,
    position      REAL    NOT NULL,
    PRIMARY KEY (queue, type, attempts_left, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE dibs_history (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id    INTEGER NOT NULL,
    event      TEXT    NOT NULL,
    from_state TEXT,
    to_state   TEXT    NOT NULL,
    worker_id  TEXT,
    token      INTEGER NOT NULL,
    by         TEXT,
    at         INTEGER NOT NULL,
    detail     TEXT
) STRICT;
CREATE INDEX dibs_history_task ON dibs_history (task_id);

CREATE TABLE dibs_queues (
    name      TEXT PRIMARY KEY,
    paused_at INTEGER,
    paused_by TEXT
) STRICT, WITHOUT ROWID;
