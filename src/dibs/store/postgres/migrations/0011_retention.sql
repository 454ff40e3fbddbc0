-- Retention: how long finished records are kept, by rules in the store, with a record of every change.
-- compatible: 10
--
-- A rule is for the records of one queue, one type or one workflow name (scope and name), or for those of the whole
-- store (scope 'store', name ''). kept: microseconds after they finished; NULL: for ever. Without a rule for the whole
-- store the defaults of the program hold. Older programs do not know the rules and prune by their own defaults.
-- The index has the oldest ended workflows of each name and list of queues (its first 300 characters: an entry must fit into a third of a page)
-- first, so that pruning reads only the workflows that it deletes (see sql/old_workflow_lines.sql). Tasks have no such
-- index: every finish would pay for it, also without rules (see sql/prune_walked.sql).

CREATE TABLE dibs_retention (
    records    text   NOT NULL CHECK (records IN ('completed', 'failed', 'cancelled', 'history', 'workers')),
    scope      text   NOT NULL CHECK (scope IN ('store', 'queue', 'type', 'workflow')),
    name       text   COLLATE "C" NOT NULL,
    kept       bigint CHECK (kept >= 0),
    changed_at bigint NOT NULL,
    changed_by text,
    PRIMARY KEY (records, scope, name)
);

CREATE TABLE dibs_retention_changes (
    id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at      bigint  NOT NULL,
    by      text,
    records text    NOT NULL,
    scope   text    NOT NULL,
    name    text    COLLATE "C" NOT NULL,
    kept    bigint,
    removed boolean NOT NULL
);

CREATE INDEX dibs_workflows_kept ON dibs_workflows (state, name, (left(queues, 300) COLLATE "C"), finished_at)
    WHERE finished_at IS NOT NULL AND step_of IS NULL;
