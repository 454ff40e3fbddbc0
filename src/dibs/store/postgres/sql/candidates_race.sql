-- The tasks that come first in a race, the random or the weighted one. A fragment. Parameters: kind, undrawn_too. Words:
-- order (the key of the race), reach. Index: the race's own, `reach` entries of each line.
--
-- Every pending task of a line that races drew an exponential number on top of where the race stood when it became
-- pending; its rate is 1 in the random race and the task's weight in the weighted one. The smallest number wins, with a
-- probability proportional to its rate; by the lack of memory of that distribution the same holds for the next winner,
-- if the race moves on to where the last one won (advance_race.sql). In a line that does not race nobody has a number:
-- there are no candidates then, unless that is no matter (`undrawn_too`), and the claim draws first.
{{undrawn}},
candidates AS MATERIALIZED (
    SELECT task.id, task.distance AS rank
    FROM lines
    JOIN dibs_races AS race ON race.queue = lines.queue AND race.type = lines.type
        AND race.attempts_left = lines.attempts_left AND race.kind = %(kind)s
    CROSS JOIN LATERAL (
        SELECT id, {{order}} - race.position AS distance FROM dibs_tasks
        WHERE {{in_line}} AND {{order}} IS NOT NULL ORDER BY {{order}} LIMIT {{reach}}
    ) AS task
    WHERE %(undrawn_too)s OR NOT EXISTS (SELECT FROM undrawn)
    ORDER BY rank LIMIT {{reach}}
)
