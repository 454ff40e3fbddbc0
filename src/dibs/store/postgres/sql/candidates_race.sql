-- The tasks that come first in a race, the random or the weighted one. A fragment. Parameters: kind. Words: order (the
-- key of the race), reach. Index: the race's own, `reach` entries of each line.
--
-- Every pending task drew an exponential number on top of where the race stood when it became pending; its rate is 1
-- in the random race and the task's weight in the weighted one. The smallest number wins, with a probability
-- proportional to its rate; by the lack of memory of that distribution the same holds for the next winner, if the race
-- moves on to where the last one won (advance_race.sql).
candidates AS MATERIALIZED (
    SELECT task.id, task.distance AS rank
    FROM lines
    LEFT JOIN dibs_races AS race ON race.queue = lines.queue AND race.type = lines.type
        AND race.attempts_left = lines.attempts_left AND race.kind = %(kind)s
    CROSS JOIN LATERAL (
        SELECT id, {{order}} - coalesce(race.position, 0) AS distance FROM dibs_tasks
        WHERE {{in_line}} ORDER BY {{order}} LIMIT {{reach}}
    ) AS task
    ORDER BY rank LIMIT {{reach}}
)
