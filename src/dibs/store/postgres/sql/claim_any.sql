-- Promise: as claim.sql, in whatever order is at hand: for the moment when all candidates of claim.sql are being
-- claimed by others. Never empty while a matching task is pending and not locked.
-- Parameters and rows as in claim.sql. Words: at_hand, count.
-- Safe: rows are locked as they are read, line after line, and no more than `count` of them.
WITH RECURSIVE {{moment}},
{{lines}},
picked AS MATERIALIZED (
    SELECT id, 0::float8 AS rank FROM (
        SELECT task.id
        FROM lines CROSS JOIN LATERAL (
            SELECT id FROM dibs_tasks WHERE {{in_line}} ORDER BY {{at_hand}} LIMIT {{count}} FOR UPDATE SKIP LOCKED
        ) AS task
        LIMIT {{count}}
    ) AS locked
    LIMIT %(exactly)s
),
{{claimed}}
SELECT 0, false, picked.rank, changed.* FROM changed JOIN picked ON picked.id = changed.task_id
