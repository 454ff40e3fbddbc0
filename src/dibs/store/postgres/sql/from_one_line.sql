-- The first tasks of the only line that there is, locked as they are read. A fragment of claim.sql, for the orders whose
-- index alone says what comes first. Others' locks are passed over in the index, however many they are: so there is no
-- guess that could fail, and no second look-up of each task. The numbering stands above the limits: it may read ahead,
-- and what is read is locked.
(SELECT id, row_number() OVER ()::float8 AS rank FROM (
    SELECT task.id
    FROM lines CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks WHERE {{in_line}} ORDER BY {{order}} LIMIT {{count}} FOR UPDATE SKIP LOCKED
    ) AS task
    WHERE (SELECT count(*) FROM lines) = 1
    LIMIT {{wanted}}
) AS alone)
UNION ALL
