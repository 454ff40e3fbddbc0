-- The workers that have been heard of, and the task types with their schemas.
-- compatible: 1

CREATE TABLE dibs_workers (
    id           TEXT    NOT NULL,
    incarnation  TEXT    NOT NULL,
    queues       TEXT,
    types        TEXT,
    metadata     TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    stopped_at   INTEGER,
    PRIMARY KEY (id, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE dibs_task_types (
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    schema     TEXT,
    defaults   TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;
