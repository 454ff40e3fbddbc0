-- Promise: this incarnation of the worker is known and was alive now, or left now.
-- Parameters: worker_id, incarnation, limited_to, queues, types, metadata, leaving, now. Rows: none.
-- Safe: limited_to is part of the record's name, so a heartbeat under a queue limit changes records of that limit only.
WITH {{moment}}
INSERT INTO dibs_workers (id, incarnation, limited_to, queues, types, metadata, started_at, heartbeat_at, stopped_at)
SELECT %(worker_id)s, %(incarnation)s, %(limited_to)s, %(queues)s, %(types)s, %(metadata)s, moment.now, moment.now,
       CASE WHEN %(leaving)s THEN moment.now END
FROM moment
ON CONFLICT (id, incarnation, limited_to) DO UPDATE
SET queues = excluded.queues, types = excluded.types, metadata = excluded.metadata,
    heartbeat_at = excluded.heartbeat_at, stopped_at = excluded.stopped_at
