-- Promise: every known worker, the oldest first. Rows: its columns, the microseconds since its last heartbeat, and the
-- queue limit of the API key that registered it (JSON, empty for none).
SELECT id, incarnation, queues, types, metadata, started_at, heartbeat_at, stopped_at, :now - heartbeat_at,
    limited_to
FROM dibs_workers ORDER BY started_at, id, incarnation, limited_to
