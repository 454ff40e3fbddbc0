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
-- expires_at: a task that waits and has not been started by then is cancelled; NULL: it does not expire, or its first
-- attempt has ended or was given back, or a client retried it.
-- random_key, weighted_key: the numbers of the task in the random orders (see dibs_random_orders); NULL in a store that
-- is not claimed in such an order.
-- parked: the queue or the type of this pending task is or was paused (type_parked: parked for the pause of its type), and the task is not in the indexes that claims read. Of a
-- task with a backlog: the backlog has registered that the task waits.
-- limits: a JSON array of the limits that the task itself names. group_key: its group. backlog: the backlog in which
-- the task waits (see dibs_backlogs); NULL for a plain task, which no limit and no fair queue applies to.
-- permits: a JSON array of the counters in which the last claim of the task is counted, until a later claim has
-- subtracted it from them; NULL if no counter counts the task.
-- key_scope: how long the idempotency key is in force; NULL: for as long as the task is kept. key_until: the end of a key
-- with the scope 'until_time'. key_ended: the key has ended before its scope, because another task has taken the key
-- (see `take_back_key`). key_request: the id of the request that enqueued the task, or replaced its content last.
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
    expires_at       INTEGER,
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
    type_parked      INTEGER NOT NULL DEFAULT 0,
    parked           INTEGER NOT NULL DEFAULT 0 CHECK (NOT parked OR state = 'pending'),
    limits           TEXT,
    group_key        TEXT,
    backlog          TEXT,
    permits          TEXT,
    key_scope        TEXT    CHECK (key_scope IN ('until_finished', 'until_started', 'until_time')),
    key_until        INTEGER,
    key_ended        INTEGER,
    key_request      TEXT
) STRICT;

-- The orders of claiming. Only claimable tasks are in these indexes: neither scheduled nor finished tasks slow a claim,
-- nor do the parked tasks of paused queues. A claim scans the first tasks of the store, and reads the tasks of its
-- types or queues where the scan does not find enough (see `scan` and `read_streams`). Each index makes every enqueue
-- dearer, so other indexes are created by the first claims that need them: those by type, queue, pair of both and
-- attempts left (see `create_stream_index`), and that of a random order (see `create_random_index`).
CREATE INDEX dibs_tasks_by_priority ON dibs_tasks (priority DESC, id)
    WHERE state = 'pending' AND parked = 0 AND backlog IS NULL;
CREATE INDEX dibs_tasks_by_age ON dibs_tasks (id)
    WHERE state = 'pending' AND parked = 0 AND backlog IS NULL;
CREATE INDEX dibs_tasks_parked ON dibs_tasks (type_parked, CASE WHEN type_parked THEN type ELSE queue END, priority DESC, id)
    WHERE state = 'pending' AND parked = 1 AND backlog IS NULL;

-- The tasks of backlogs, those that their backlog has not registered yet, and those that have ended a claim and still
-- count as its users. The last two hold few tasks at any time: every claim clears them.
CREATE INDEX dibs_tasks_backlog ON dibs_tasks (backlog, priority DESC, id)
    WHERE backlog IS NOT NULL AND state = 'pending';
CREATE INDEX dibs_tasks_backlog_age ON dibs_tasks (backlog, id)
    WHERE backlog IS NOT NULL AND state = 'pending';
CREATE INDEX dibs_tasks_unregistered ON dibs_tasks (id)
    WHERE backlog IS NOT NULL AND state = 'pending' AND parked = 0;
CREATE INDEX dibs_tasks_returning ON dibs_tasks (id)
    WHERE permits IS NOT NULL AND state <> 'claimed';

CREATE INDEX dibs_tasks_due ON dibs_tasks (run_at) WHERE state = 'scheduled';
-- Waiting tasks that expire. The condition does not name states: the planner must not take an index of one state instead.
CREATE INDEX dibs_tasks_expiring ON dibs_tasks (expires_at)
    WHERE expires_at IS NOT NULL AND lease_until IS NULL AND finished_at IS NULL;
CREATE INDEX dibs_tasks_leases ON dibs_tasks (lease_until) WHERE state = 'claimed';
CREATE INDEX dibs_tasks_requests ON dibs_tasks (worker_id, request)
    WHERE state = 'claimed' AND request IS NOT NULL;
-- Finished tasks. A NULL test is cheaper than a list of states, and every insert and transition evaluates the condition.
CREATE INDEX dibs_tasks_finished ON dibs_tasks (state, finished_at) WHERE finished_at IS NOT NULL;
-- The dead letter, and nothing else.
CREATE INDEX dibs_tasks_dead ON dibs_tasks (state, finished_at) WHERE state = 'failed' AND set_aside IS NULL;
-- The keys in force, each of which belongs to a queue. A task leaves the index with the change of its state that ends the
-- scope of its key, so no statement frees a key. A key with the scope 'until_started' ends with the first claim (the
-- token is 0 before) and stays so: a task that is released, fails or is recovered does not come back into the index, where
-- it could meet another task. `key` is the first column, so that a search for a key in all queues uses the index.
-- The condition is the fragment `key_in_force`.
CREATE UNIQUE INDEX dibs_tasks_key ON dibs_tasks (key, queue)
    WHERE key IS NOT NULL AND (key_scope IS NULL OR (key_ended IS NULL AND (key_scope = 'until_time'
        OR (state NOT IN ('completed', 'failed', 'cancelled') AND (key_scope = 'until_finished' OR token = 0)))));
-- The tasks of schedules that have not ended, by the keys of schedules (see `unfinished_task` in schedules.sql).
CREATE INDEX dibs_tasks_ticks ON dibs_tasks (key)
    WHERE key >= 'schedule:' AND key < 'schedule<' AND state NOT IN ('completed', 'failed', 'cancelled');
-- The tasks with keys that end, for searches and for repeated requests.
CREATE INDEX dibs_tasks_scoped_keys ON dibs_tasks (key, queue, key_request) WHERE key_scope IS NOT NULL;

-- Keys that are in force until a time, also after their task was pruned; written by the enqueue of the task. state: the
-- final state of the task, once it is pruned.
CREATE TABLE dibs_kept_keys (
    key          TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    until        INTEGER NOT NULL,
    task_id      INTEGER NOT NULL,
    type         TEXT    NOT NULL,
    key_content  TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    state        TEXT,
    PRIMARY KEY (key, queue)
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_kept_keys_until ON dibs_kept_keys (until);
CREATE INDEX dibs_kept_keys_task ON dibs_kept_keys (task_id);

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
-- The moves of tasks to other queues, and nothing else: the queue of a task at an earlier time.
CREATE INDEX dibs_history_moved ON dibs_history (task_id, id)
    WHERE event = 'changed' AND substr(detail, 1, 9) = '{"queue":';

-- The newest entry of the history that was pruned; no row if none was. A consumer of events that has not read it misses it.
CREATE TABLE dibs_history_pruned (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
) STRICT;

-- Queues and task types that have been paused (scope: 'queue' or 'type'). parked: their tasks may be parked for this
-- pause; true from the pause until all of them are back after the resume.
CREATE TABLE dibs_pauses (
    scope     TEXT    NOT NULL CHECK (scope IN ('queue', 'type')),
    name      TEXT    NOT NULL,
    paused_at INTEGER,
    paused_by TEXT,
    parked    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_pauses_paused ON dibs_pauses (scope, name) WHERE paused_at IS NOT NULL;
CREATE INDEX dibs_pauses_resumed ON dibs_pauses (scope, name) WHERE parked AND paused_at IS NULL;

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

-- Task types, with the schemas of their params. source: `code` for a schema that a program declares in its code, `command`
-- for one that was registered by hand.
CREATE TABLE dibs_task_types (
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    schema     TEXT,
    defaults   TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    source     TEXT    NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- Schedules: tasks that are enqueued at the ticks of a cron expression (cron, timezone), at an interval (every,
-- microseconds), or once (at). next_at: the next tick, NULL for a schedule that has ended; due_at: when its task is
-- enqueued, later than next_at by the jitter of the tick. overlap: what a tick does while a task of the schedule has not
-- ended; skipped: how many ticks were skipped for that reason. declared: the schedule that a program declares in
-- its code, as JSON; the columns have other values if they were set by hand since that declaration. removed_at: a
-- declared schedule was removed by hand; the row keeps its declaration, so that the same one does not set it again.
CREATE TABLE dibs_schedules (
    name         TEXT    NOT NULL PRIMARY KEY,
    cron         TEXT,
    timezone     TEXT    NOT NULL DEFAULT 'UTC',
    every        INTEGER,
    at           INTEGER,
    jitter       INTEGER NOT NULL DEFAULT 0,
    start_at     INTEGER,
    end_at       INTEGER,
    overlap      TEXT    NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip', 'queue')),
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
    expires_in   INTEGER,
    source       TEXT    NOT NULL CHECK (source IN ('code', 'command')),
    tags         TEXT,
    limits       TEXT,
    group_key    TEXT,
    declared     TEXT,
    next_at      INTEGER,
    due_at       INTEGER,
    last_at      INTEGER,
    last_task_id INTEGER,
    last_error   TEXT,
    skipped      INTEGER NOT NULL DEFAULT 0,
    last_skipped_at INTEGER,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    removed_at   INTEGER
) STRICT;
CREATE INDEX dibs_schedules_due ON dibs_schedules (due_at) WHERE enabled;

-- Limits and fair share. See docs/decisions/0048-limits-as-backlogs-and-counters.md.
--
-- At most one row, which a transaction locks before it reads or writes dibs_counters, dibs_backlogs or dibs_groups, or
-- reads dibs_signals. version: grows with every change of a limit or of a setting; an enqueue compares it with the
-- version for which the process has read the settings. No row (version 0): the store has never had a limit.
-- changes: how often the settings of a queue or type were changed. settled: all tasks that wait obey the settings as they
-- were after this many changes.
CREATE TABLE dibs_flow (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    changes INTEGER NOT NULL DEFAULT 0,
    settled INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Limits. max: live claims at once. starts, period (microseconds), burst: the rate of claims. per: 'group' if each
-- group has its own. declared: as in dibs_schedules. removed_at: the limit was removed; tasks that name it run without
-- it, and their claims still count, so that the limit is exact at once if it is set again. A limit that was removed by
-- hand keeps its declaration, so that the same declaration does not set it again.
CREATE TABLE dibs_limits (
    name       TEXT    NOT NULL PRIMARY KEY,
    max        INTEGER,
    starts     INTEGER,
    period     INTEGER,
    burst      INTEGER NOT NULL DEFAULT 1,
    per        TEXT    CHECK (per = 'group'),
    source     TEXT    NOT NULL CHECK (source IN ('code', 'command')),
    declared   TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    removed_at INTEGER
) STRICT, WITHOUT ROWID;

-- Which limits the tasks of a queue or type have, whether the groups of a queue take turns (fair), and which parameter
-- of a type names the group. turn: the turn of the group that was served last (see dibs_groups).
CREATE TABLE dibs_flow_settings (
    scope      TEXT    NOT NULL CHECK (scope IN ('queue', 'type')),
    name       TEXT    NOT NULL,
    limits     TEXT    NOT NULL DEFAULT '[]',
    fair       INTEGER NOT NULL DEFAULT 0,
    group_by   TEXT,
    turn       REAL    NOT NULL DEFAULT 0,
    source     TEXT    NOT NULL CHECK (source IN ('code', 'command')),
    declared   TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- Groups with a weight, and groups of fair queues that have been served. turn: the virtual time at which the group is
-- served next; it grows by 1 / weight with each claim.
CREATE TABLE dibs_groups (
    queue     TEXT NOT NULL,
    group_key TEXT NOT NULL,
    weight    REAL NOT NULL DEFAULT 1,
    turn      REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, group_key)
) STRICT, WITHOUT ROWID;

-- The use of each limit, or of each group of a limit. used: the tasks whose permits name the counter. allowed_at: the
-- theoretical arrival time of a rate (GCRA). opens_at: when the rate allows the next start, where a backlog waits for it;
-- noted_at: when that was found.
CREATE TABLE dibs_counters (
    name       TEXT    NOT NULL PRIMARY KEY,
    limit_name TEXT    NOT NULL,
    group_key  TEXT    NOT NULL,
    used       INTEGER NOT NULL DEFAULT 0,
    allowed_at INTEGER NOT NULL DEFAULT 0,
    opens_at   INTEGER,
    noted_at   INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_counters_limit ON dibs_counters (limit_name, group_key);
CREATE INDEX dibs_counters_opening ON dibs_counters (opens_at) WHERE opens_at IS NOT NULL;
CREATE INDEX dibs_counters_noted ON dibs_counters (noted_at) WHERE opens_at IS NOT NULL;

-- Backlogs: the waiting tasks of one queue and type with the same group and the same limits. name: a hash of these.
-- limits: the limits that the tasks name themselves. limit_names, counters: all their limits, and the counters of these.
-- priority, head: the highest priority of a waiting task, and the lowest id with that priority; no task of the backlog
-- comes before them. turn: that of the group, 0 where the queue is not fair. closed_on: the full counter that the backlog
-- waits for; NULL if a claim may take its tasks; empty if no task waits. waited_on, waited_since: the counter that it
-- waited for last, and since when. waits: a JSON array of the limits that it has waited for, null while it was open, each
-- with the time since when; NULL before the first wait.
CREATE TABLE dibs_backlogs (
    name         TEXT    NOT NULL PRIMARY KEY,
    queue        TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    group_key    TEXT    NOT NULL,
    limits       TEXT,
    limit_names  TEXT    NOT NULL,
    counters     TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    head         INTEGER NOT NULL,
    turn         REAL    NOT NULL DEFAULT 0,
    closed_on    TEXT,
    waited_on    TEXT,
    waited_since INTEGER,
    waits        TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX dibs_backlogs_open ON dibs_backlogs (queue, type, priority DESC, turn, head) WHERE closed_on IS NULL;
CREATE INDEX dibs_backlogs_closed ON dibs_backlogs (closed_on, queue, type, priority DESC, turn, head)
    WHERE closed_on > '';
CREATE INDEX dibs_backlogs_group ON dibs_backlogs (queue, group_key);

-- Notes that tasks of a backlog wait, which the next claim reads and deletes. An enqueue writes one for each backlog, so
-- that it locks no row that another transaction writes.
CREATE TABLE dibs_signals (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    backlog     TEXT    NOT NULL,
    queue       TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    group_key   TEXT    NOT NULL,
    limits      TEXT,
    priority    INTEGER NOT NULL,
    head        INTEGER NOT NULL
) STRICT;

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
-- NULL while the step has not ended. `expires_in`: the step must start within this time after its parents. When `active` falls to 0, the finalization is due (`due_at`), until a processor
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
    finalize_when      TEXT    NOT NULL DEFAULT 'success' CHECK (finalize_when IN ('success', 'failure', 'always')),
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
    expires_in  INTEGER,
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

-- What the handlers of a task have logged, one row a line. A line belongs to an attempt (token); number: its place among
-- the lines of the attempt. at: the clock of the worker. The lines are deleted with their task. The primary key is also
-- the order in which lines are read.
CREATE TABLE dibs_log_lines (
    task_id INTEGER NOT NULL,
    token   INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   INTEGER NOT NULL,
    logger  TEXT    NOT NULL,
    message TEXT    NOT NULL,
    PRIMARY KEY (task_id, token, number)
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
