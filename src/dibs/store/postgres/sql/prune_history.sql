-- Promise: up to `limit` of the oldest lines of history are deleted, if older than `kept`. Rows: (id).
-- Index: the primary key; lines are appended in time order, so the oldest are at its beginning.
WITH {{moment}},
oldest AS MATERIALIZED (SELECT id FROM dibs_history ORDER BY id LIMIT {{limit}} FOR UPDATE SKIP LOCKED)
DELETE FROM dibs_history AS past USING oldest, moment
WHERE past.id = oldest.id AND past.at <= moment.now - %(kept)s
RETURNING past.id
