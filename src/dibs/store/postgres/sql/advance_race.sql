-- Promise: the races of the lines that passed the filters move on by `distance`; and the oldest task of each of them has
-- a number, if it somehow came without one and nobody holds it: so none is passed over for ever. Rows: none.
-- Parameters: queues, types, least, kind, distance. Words: key, rate. Safe: lines are locked in one order, so two of
-- these cannot deadlock; claims that overlap may both move a race on, which only shifts the odds between them a little.
WITH RECURSIVE {{lines}},
held AS MATERIALIZED (
    SELECT race.* FROM lines
    JOIN dibs_races AS race ON race.queue = lines.queue AND race.type = lines.type
        AND race.attempts_left = lines.attempts_left AND race.kind = %(kind)s
    ORDER BY race.queue, race.type, race.attempts_left
    FOR UPDATE OF race
),
passed_over AS MATERIALIZED (
    SELECT locked.id, lines.position
    FROM held AS lines
    CROSS JOIN LATERAL (SELECT id, {{key}} AS key FROM dibs_tasks WHERE {{in_line}} ORDER BY id LIMIT 1) AS oldest
    CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks
        WHERE id = oldest.id AND oldest.key IS NULL AND {{still: 'pending'}} AND {{key}} IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS locked
),
drawn AS (
    UPDATE dibs_tasks AS task SET {{key}} = passed_over.position + %(distance)s::float8 - ln(1 - random()) / {{rate}}
    FROM passed_over WHERE task.id = passed_over.id
)
UPDATE dibs_races AS race SET position = race.position + %(distance)s::float8
FROM held
WHERE race.queue = held.queue AND race.type = held.type AND race.attempts_left = held.attempts_left
  AND race.kind = held.kind
