-- Promise: the races of the lines that passed the filters move on by `distance`. Rows: none.
-- Parameters: queues, types, least, kind, distance. Safe: lines are written in one order, so two of these cannot
-- deadlock; claims that overlap may both move a race on, which only shifts the odds between them a little.
WITH RECURSIVE {{lines}}
INSERT INTO dibs_races (queue, type, attempts_left, kind, position)
SELECT queue, type, attempts_left, %(kind)s, %(distance)s::float8 FROM lines ORDER BY queue, type, attempts_left
ON CONFLICT (queue, type, attempts_left, kind) DO UPDATE SET position = dibs_races.position + excluded.position
