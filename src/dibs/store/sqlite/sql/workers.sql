-- Promise: every worker heard of, the oldest first. Rows: its columns, and how long it has been silent.
SELECT id, incarnation, queues, types, metadata, started_at, heartbeat_at, stopped_at, :now - heartbeat_at
FROM dibs_workers ORDER BY started_at, id, incarnation
