-- The first tasks in an order by priority whose order within a priority is not that of the index, best first. A fragment.
-- Words: order, reach; beyond and levels (the way through the priorities), within (the order in each).
-- Index: dibs_tasks_by_priority. The priorities of a line are found by jumping from each to the next, and of each `reach`
-- entries are read, in either direction, until there are `reach` of the line: so these orders need no index of their own.
candidates AS MATERIALIZED (
    SELECT task.id, row_number() OVER (ORDER BY {{order}})::float8 AS rank
    FROM lines CROSS JOIN LATERAL (
        WITH RECURSIVE level (priority) AS (
            (SELECT priority FROM dibs_tasks WHERE {{in_line}} ORDER BY {{levels}} LIMIT 1)
            UNION ALL
            SELECT (SELECT priority FROM dibs_tasks WHERE {{in_line}} AND priority {{beyond}} level.priority
                    ORDER BY {{levels}} LIMIT 1)
            FROM level WHERE level.priority IS NOT NULL
        )
        SELECT found.id, found.priority
        FROM level CROSS JOIN LATERAL (
            SELECT id, priority FROM dibs_tasks WHERE {{in_line}} AND priority = level.priority
            ORDER BY {{within}} LIMIT {{reach}}
        ) AS found
        LIMIT {{reach}}
    ) AS task
    ORDER BY rank LIMIT {{reach}}
)
