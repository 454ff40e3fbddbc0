-- The schema of dibs.
--
-- Times are integer microseconds since 1970 (UTC). JSON is stored as text. AUTOINCREMENT, because the id of a pruned
-- task must never come back: a late worker could then finish another task with an old (id, token).

-- Tasks.
--
-- ahead: the worker claimed the task before it could start it, and has not reported its start; true only while the task
-- is claimed. dropped: how often a worker was lost while it held the task ahead.
-- request: the name that the worker gave the claim that holds the task (see `claims_of_request`).
-- trace: the W3C traceparent of the program that enqueued the task.
-- tags: a JSON array of texts; NULL if the task has none.
-- set_aside: why a failed task is not in the dead letter: its workflow went on without it ('ignored'), or a client
-- discarded it ('discarded').
-- random_key, weighted_key: the numbers of the task in the random orders (see dibs_random_orders); NULL in a store that
-- is not claimed in such an order.
-- parked: the queue of this pending task is or was paused, and the task is not in the indexes that claims read.
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
    weighted_key     REAL,
    ahead            INTEGER NOT NULL DEFAULT 0,
    dropped          INTEGER NOT NULL DEFAULT 0,
    request          TEXT,
    workflow_id      INTEGER,
    trace            TEXT,
    tags             TEXT,
    set_aside        TEXT,
    parked           INTEGER NOT NULL DEFAULT 0 CHECK (NOT parked OR state = 'pending')
) STRICT;

-- The orders of claiming. Only claimable tasks are in these indexes: neither scheduled nor finished tasks slow a claim,
-- nor do the parked tasks of paused queues. A claim scans the first tasks of the store, and reads the tasks of its
-- types or queues where the scan does not find enough (see `scan` and `read_streams`). The indexes of a random order
-- are created when the order begins (see `create_random_index`), because each index makes every enqueue dearer.
CREATE INDEX dibs_tasks_by_priority ON dibs_tasks (priority DESC, id)
    WHERE state = 'pending' AND parked = 0;
CREATE INDEX dibs_tasks_by_type ON dibs_tasks (type, priority DESC, id)
    WHERE state = 'pending' AND parked = 0;
CREATE INDEX dibs_tasks_by_queue ON dibs_tasks (queue, priority DESC, id)
    WHERE state = 'pending' AND parked = 0;
CREATE INDEX dibs_tasks_by_age ON dibs_tasks (id)
    WHERE state = 'pending' AND parked = 0;
CREATE INDEX dibs_tasks_parked ON dibs_tasks (queue, priority DESC, id)
    WHERE state = 'pending' AND parked = 1;

CREATE INDEX dibs_tasks_due ON dibs_tasks (run_at) WHERE state = 'scheduled';
CREATE INDEX dibs_tasks_leases ON dibs_tasks (lease_until) WHERE state = 'claimed';
CREATE INDEX dibs_tasks_requests ON dibs_tasks (worker_id, request)
    WHERE state = 'claimed' AND request IS NOT NULL;
CREATE INDEX dibs_tasks_finished ON dibs_tasks (state, finished_at)
    WHERE state IN ('completed', 'failed', 'cancelled');
-- The dead letter, and nothing else.
CREATE INDEX dibs_tasks_dead ON dibs_tasks (state, finished_at) WHERE state = 'failed' AND set_aside IS NULL;
-- An idempotency key belongs to a queue. `key` is the first column, so that a search for a key in all queues uses the
-- index.
CREATE UNIQUE INDEX dibs_tasks_key ON dibs_tasks (key, queue) WHERE key IS NOT NULL;

-- The random orders (kind: 'random' or 'weighted') that claims use. A task that becomes pending gets a random-order
-- number: `position` plus an exponential random number (see `scan_random`). numbered_to: tasks with higher ids may lack
-- a number; NULL: all have one. used_at: the last claim in this order. ended: no claim has used the order for a day, and
-- tasks get no more numbers.
CREATE TABLE dibs_random_orders (
    kind        TEXT    NOT NULL PRIMARY KEY,
    position    REAL    NOT NULL,
    numbered_to INTEGER,
    used_at     INTEGER NOT NULL,
    ended       INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What happened to each task.
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

-- Queues that have been paused. parked: tasks of the queue may be parked.
CREATE TABLE dibs_queues (
    name      TEXT PRIMARY KEY,
    paused_at INTEGER,
    paused_by TEXT,
    parked    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_queues_paused ON dibs_queues (name) WHERE paused_at IS NOT NULL;
CREATE INDEX dibs_queues_resumed ON dibs_queues (name) WHERE parked AND paused_at IS NULL;

-- Workers, from their heartbeats. A record belongs to the queue limit of the API key that wrote it (limited_to: JSON,
-- empty for no limit), so that a worker of the same name under another limit does not overwrite it.
CREATE TABLE dibs_workers (
    id           TEXT    NOT NULL,
    incarnation  TEXT    NOT NULL,
    limited_to   TEXT    NOT NULL DEFAULT '',
    queues       TEXT,
    types        TEXT,
    metadata     TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    stopped_at   INTEGER,
    PRIMARY KEY (id, incarnation, limited_to)
) STRICT, WITHOUT ROWID;

-- Task types, with the schemas of their params.
CREATE TABLE dibs_task_types (
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    schema     TEXT,
    defaults   TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- Schedules: tasks that are enqueued at the ticks of a cron expression. declared: the schedule that a program declares in
-- its code, as JSON; the columns have other values if they were set by hand since that declaration.
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
    tags         TEXT,
    declared     TEXT,
    next_at      INTEGER NOT NULL,
    last_at      INTEGER,
    last_task_id INTEGER,
    last_error   TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX dibs_schedules_due ON dibs_schedules (next_at) WHERE enabled;

-- API keys. Of the secret of a key only the SHA-256 is stored.
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

-- The rate limits of keys. A window begins with the first request after the last window ended; `granted` is what the
-- last request for permits got (see `take_permits`).
CREATE TABLE dibs_rates (
    key_id  TEXT    NOT NULL PRIMARY KEY,
    ends_at INTEGER NOT NULL,
    used    INTEGER NOT NULL,
    granted INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Browser sessions of the dashboard. Of the secret only the SHA-256 is stored. The key is looked up again at each
-- request, so that revoking the key ends the session.
CREATE TABLE dibs_sessions (
    digest     TEXT    NOT NULL PRIMARY KEY,
    key_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_sessions_expiry ON dibs_sessions (expires_at);

-- A sample of the statistics for each minute, written by one of all servers.
CREATE TABLE dibs_samples (
    at   INTEGER PRIMARY KEY,
    body TEXT    NOT NULL
) STRICT;

-- Workflows: graphs of steps.
--
-- A step is a task with a row in dibs_steps. `waits` counts its parents that have not passed. `active` of the workflow
-- counts the steps that wait for nothing and have not ended. `passed` says whether the children of a step may begin;
-- NULL while the step has not ended. When `active` falls to 0, the finalization is due (`due_at`), until a processor
-- has done it. A sub-workflow belongs to the tree of its `root_id` (NULL: the workflow is the root) and is a step of
-- its parent (`step_of`). The key of a workflow belongs to the set of queues that its graph named when it was started
-- (key_queues).
CREATE TABLE dibs_workflows (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    root_id            INTEGER,
    step_of            INTEGER,
    name               TEXT    NOT NULL,
    key                TEXT,
    key_content        TEXT,
    state              TEXT    NOT NULL DEFAULT 'running'
                               CHECK (state IN ('running', 'finalizing', 'completed', 'failed', 'cancelled')),
    on_failure         TEXT    NOT NULL,
    queues             TEXT    NOT NULL,
    steps              INTEGER NOT NULL DEFAULT 0,
    active             INTEGER NOT NULL DEFAULT 0,
    ended              INTEGER NOT NULL DEFAULT 0,
    failures           INTEGER NOT NULL DEFAULT 0,
    stopping           TEXT,
    created_at         INTEGER NOT NULL,
    allowed            INTEGER,
    deadline           INTEGER,
    due_at             INTEGER,
    finished_at        INTEGER,
    error              TEXT,
    finalizer_id       INTEGER,
    finalization_token INTEGER NOT NULL DEFAULT 0,
    finalization_by    TEXT,
    finalization_until INTEGER,
    key_queues         TEXT
) STRICT;
CREATE UNIQUE INDEX dibs_workflows_key ON dibs_workflows (key, key_queues) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX dibs_workflows_step ON dibs_workflows (step_of) WHERE step_of IS NOT NULL;
CREATE INDEX dibs_workflows_root ON dibs_workflows (root_id) WHERE root_id IS NOT NULL;
CREATE INDEX dibs_workflows_due ON dibs_workflows (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX dibs_workflows_deadline ON dibs_workflows (deadline)
    WHERE state IN ('running', 'finalizing') AND deadline IS NOT NULL;
CREATE INDEX dibs_workflows_running ON dibs_workflows (id) WHERE state = 'running';
CREATE INDEX dibs_workflows_finished ON dibs_workflows (state, finished_at) WHERE finished_at IS NOT NULL;
-- The oldest ended workflows of each name and list of queues come first (the first 300 characters of the list), so that
-- pruning reads only the workflows that it deletes (see `workflow_groups`). Tasks have no such index: every finish
-- would pay for it, also without rules (see `prune_walked`).
CREATE INDEX dibs_workflows_kept ON dibs_workflows (state, name, substr(queues, 1, 300), finished_at)
    WHERE finished_at IS NOT NULL AND step_of IS NULL;

CREATE TABLE dibs_steps (
    task_id     INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('task', 'workflow', 'finalizer')),
    on_failure  TEXT    NOT NULL CHECK (on_failure IN ('fail', 'continue', 'ignore')),
    waits       INTEGER NOT NULL,
    delay       INTEGER,
    passed      INTEGER
) STRICT;
CREATE UNIQUE INDEX dibs_steps_names ON dibs_steps (workflow_id, name);
CREATE INDEX dibs_steps_open ON dibs_steps (workflow_id, task_id) WHERE passed IS NULL;
CREATE INDEX dibs_steps_failed ON dibs_steps (task_id) WHERE passed = 0;

CREATE TABLE dibs_edges (
    parent_id INTEGER NOT NULL,
    child_id  INTEGER NOT NULL,
    PRIMARY KEY (parent_id, child_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_edges_child ON dibs_edges (child_id, parent_id);

-- Requests to finalize a workflow, granted or refused.
CREATE TABLE dibs_finalization_attempts (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id        INTEGER NOT NULL,
    processor          TEXT    NOT NULL,
    claimed            INTEGER NOT NULL,
    reason             TEXT    NOT NULL,
    state              TEXT    NOT NULL,
    message            TEXT    NOT NULL,
    already_claimed_by TEXT,
    token              INTEGER,
    at                 INTEGER NOT NULL
) STRICT;
CREATE INDEX dibs_finalization_attempts_workflow ON dibs_finalization_attempts (workflow_id, id);

-- What the attempts of a task have stored for the next attempt.
CREATE TABLE dibs_checkpoints (
    task_id INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    value   TEXT    NOT NULL,
    token   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (task_id, name)
) STRICT, WITHOUT ROWID;

-- Retention: how long finished records are kept, with a record of every change.
--
-- A rule is for the records of one queue, one type or one workflow name (scope and name), or for those of the whole
-- store (scope 'store', name ''). kept: microseconds after the records finished; NULL: for ever. Without a rule for the
-- whole store, the defaults of the program apply.
CREATE TABLE dibs_retention (
    records    TEXT    NOT NULL CHECK (records IN ('completed', 'failed', 'cancelled', 'history', 'workers')),
    scope      TEXT    NOT NULL CHECK (scope IN ('store', 'queue', 'type', 'workflow')),
    name       TEXT    NOT NULL,
    kept       INTEGER CHECK (kept >= 0),
    changed_at INTEGER NOT NULL,
    changed_by TEXT,
    PRIMARY KEY (records, scope, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE dibs_retention_changes (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    by      TEXT,
    records TEXT    NOT NULL,
    scope   TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    kept    INTEGER,
    removed INTEGER NOT NULL
) STRICT;
