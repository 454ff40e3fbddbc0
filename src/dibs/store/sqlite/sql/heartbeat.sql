-- Promise: this incarnation of the worker is known and was alive now, or left now.
-- Parameters: worker_id, incarnation, limited_to, queues, types, metadata, leaving, now. Rows: none.
-- Safe: limited_to is part of the record's name, so a heartbeat under a queue limit changes records of that limit only.
INSERT INTO dibs_workers (id, incarnation, limited_to, queues, types, metadata, started_at, heartbeat_at, stopped_at)
VALUES (:worker_id, :incarnation, :limited_to, :queues, :types, :metadata, :now, :now, CASE WHEN :leaving THEN :now END)
ON CONFLICT (id, incarnation, limited_to) DO UPDATE
SET queues = excluded.queues, types = excluded.types, metadata = excluded.metadata,
    heartbeat_at = excluded.heartbeat_at, stopped_at = excluded.stopped_at
