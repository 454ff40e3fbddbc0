-- Workflows: graphs of steps, who may finalize them; and what tasks keep between their attempts.
-- compatible: 2
--
-- A step is a task with a row in dibs_steps. `waits` counts its parents that have not passed; a step that waits for
-- nothing and has not ended is what its workflow's `active` counts. `passed` says whether its children may begin; NULL
-- while it has not ended. When `active` falls to 0 the finalization is due (`due_at`), until somebody has done it.
-- A sub-workflow belongs to the tree of its `root_id` (NULL: it is the root) and is a step of its parent (`step_of`).
-- Code that does not know steps runs them as tasks; upkeep then tells their workflow (see sql/missed_steps.sql).

ALTER TABLE dibs_tasks ADD COLUMN workflow_id INTEGER;

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
    finalization_until INTEGER
) STRICT;
CREATE UNIQUE INDEX dibs_workflows_key ON dibs_workflows (key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX dibs_workflows_step ON dibs_workflows (step_of) WHERE step_of IS NOT NULL;
CREATE INDEX dibs_workflows_root ON dibs_workflows (root_id) WHERE root_id IS NOT NULL;
CREATE INDEX dibs_workflows_due ON dibs_workflows (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX dibs_workflows_deadline ON dibs_workflows (deadline)
    WHERE state IN ('running', 'finalizing') AND deadline IS NOT NULL;
CREATE INDEX dibs_workflows_running ON dibs_workflows (id) WHERE state = 'running';
CREATE INDEX dibs_workflows_finished ON dibs_workflows (state, finished_at) WHERE finished_at IS NOT NULL;

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

CREATE TABLE dibs_checkpoints (
    task_id INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    value   TEXT    NOT NULL,
    token   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (task_id, name)
) STRICT, WITHOUT ROWID;
