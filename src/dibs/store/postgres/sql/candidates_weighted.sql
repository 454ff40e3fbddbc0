-- Tasks by their weight: the first ones of the weighted race. A fragment. Words: reach.
-- Index: dibs_tasks_by_weight, `reach` entries of each line.
--
-- Every pending task drew an exponential number with its weight as the rate, on top of where the race stood when
-- it became pending. The smallest one wins, with a probability proportional to its weight; by the lack of memory
-- of that distribution the same holds for the next winner, if the race moves on to where the last one won
-- (advance_race.sql).
candidates AS MATERIALIZED (
    SELECT task.id, task.distance AS rank
    FROM lines
    LEFT JOIN dibs_races AS race USING (queue, type, attempts_left)
    CROSS JOIN LATERAL (
        SELECT id, weighted_key - coalesce(race.position, 0) AS distance FROM dibs_tasks
        WHERE {{in_line}} ORDER BY weighted_key LIMIT {{reach}}
    ) AS task
    ORDER BY rank LIMIT {{reach}}
)
