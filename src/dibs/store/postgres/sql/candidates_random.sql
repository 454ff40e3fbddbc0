-- Tasks in random order: those that follow a random point by their random keys, shuffled. With fewer pending tasks
-- than `reach` the choice is exactly uniform. A fragment. Parameters: start. Words: reach.
-- Index: dibs_tasks_by_random, `reach` entries of each line from the point on, and from its beginning.
candidates AS MATERIALIZED (
    SELECT nearest.id, row_number() OVER (ORDER BY random())::float8 AS rank
    FROM (
        SELECT task.id
        FROM lines CROSS JOIN LATERAL (
            (SELECT id, random_key - %(start)s::float8 AS distance FROM dibs_tasks
             WHERE {{in_line}} AND random_key >= %(start)s::float8 ORDER BY random_key LIMIT {{reach}})
            UNION ALL
            (SELECT id, random_key - %(start)s::float8 + 1 FROM dibs_tasks
             WHERE {{in_line}} AND random_key < %(start)s::float8 ORDER BY random_key LIMIT {{reach}})
        ) AS task
        ORDER BY task.distance LIMIT {{reach}}
    ) AS nearest
    ORDER BY rank
)
