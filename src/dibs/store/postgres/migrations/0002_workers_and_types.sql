-- The workers that have been heard of, and the task types with their schemas.
-- compatible: 1

CREATE TABLE dibs_workers (
    id           text   COLLATE "C" NOT NULL,
    incarnation  text   NOT NULL,
    queues       text,
    types        text,
    metadata     text   NOT NULL,
    started_at   bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    stopped_at   bigint,
    PRIMARY KEY (id, incarnation)
) WITH (fillfactor = 50);

CREATE TABLE dibs_task_types (
    name       text    COLLATE "C" NOT NULL,
    version    integer NOT NULL,
    schema     text,
    defaults   text    NOT NULL,
    created_at bigint  NOT NULL,
    PRIMARY KEY (name, version)
);
