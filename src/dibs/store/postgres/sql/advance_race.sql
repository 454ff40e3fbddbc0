-- Promise: the races of the lines that passed the filters move on by `distance`. Rows: none.
-- Parameters: queues, types, least, distance. Safe: lines are written in one order, so two of these cannot deadlock.
WITH RECURSIVE {{lines}}
INSERT INTO dibs_races (queue, type, attempts_left, position)
SELECT queue, type, attempts_left, %(distance)s::float8 FROM lines ORDER BY queue, type, attempts_left
ON CONFLICT (queue, type, attempts_left) DO UPDATE SET position = dibs_races.position + excluded.position
