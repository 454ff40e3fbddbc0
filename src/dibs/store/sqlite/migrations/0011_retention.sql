-- Retention: how long finished records are kept, by rules in the store, with a record of every change.
-- compatible: 10
--
-- A rule is for the records of one queue, one type or one workflow name (scope and name), or for those of the whole
-- store (scope 'store', name ''). kept: microseconds after they finished; NULL: for ever. Without a rule for the whole
-- store the defaults of the program hold. Older programs do not know the rules and prune by their own defaults.
-- The index has the oldest ended workflows of each name and list of queues (its first 300 characters)
-- first, so that pruning reads only the workflows that it deletes (see sql/old_workflow_lines.sql). Tasks have no such
-- index: every finish would pay for it, also without rules (see sql/prune_walked.sql).

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

CREATE INDEX dibs_workflows_kept ON dibs_workflows (state, name, substr(queues, 1, 300), finished_at)
    WHERE finished_at IS NOT NULL AND step_of IS NULL;
