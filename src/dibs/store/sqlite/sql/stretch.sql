-- Promise: how far the next `limit` tasks below an id, and above another, reach. Parameters: above, below, limit.
-- Rows: (highest id, lowest id, how many); one row, of NULLs and 0 where there are none. Index: the primary key.
SELECT max(id), min(id), count(*)
FROM (SELECT id FROM dibs_tasks WHERE id > :above AND id < :below ORDER BY id DESC LIMIT {{limit}}) AS stretch
