-- The first tasks of several lines in the order asked for, best first. Where there is only one, from_one_line.sql needs no
-- candidates. A fragment. Words: only (if_several, or nothing), order, reach. Index: the order's own, `reach` entries of each line; only those few are sorted.
candidates AS MATERIALIZED (
    SELECT task.id, row_number() OVER (ORDER BY {{order}})::float8 AS rank
    FROM lines CROSS JOIN LATERAL (
        SELECT id, priority FROM dibs_tasks WHERE {{in_line}} ORDER BY {{order}} LIMIT {{reach}}
    ) AS task
    {{only}}
    ORDER BY rank LIMIT {{reach}}
)
