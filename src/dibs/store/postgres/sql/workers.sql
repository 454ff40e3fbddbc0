-- Promise: every worker heard of, the oldest first. Rows: its columns, and how long it has been silent.
WITH {{moment}}
SELECT id, incarnation, queues, types, metadata, started_at, heartbeat_at, stopped_at, moment.now - heartbeat_at
FROM dibs_workers, moment ORDER BY started_at, id, incarnation
