-- Promise: how far the next `limit` workflows below an id reach. Parameters: below, limit.
-- Rows: (lowest id, how many); one row, of NULL and 0 where there are none. Index: the primary key.
SELECT min(id), count(*)
FROM (SELECT id FROM dibs_workflows WHERE id < :below ORDER BY id DESC LIMIT {{limit}}) AS stretch
