-- Promise: up to `limit` of the oldest lines of history are deleted, if older than `kept`. Rows: (id).
-- Index: the primary key; lines are appended in time order, so the oldest are at its beginning.
DELETE FROM dibs_history
WHERE id IN (SELECT id FROM dibs_history ORDER BY id LIMIT {{limit}}) AND at <= :now - :kept
RETURNING id
