-- Promise: a race of a line moves on by `distance`. Parameters: the line, kind, distance. Rows: none.
INSERT INTO dibs_races (queue, type, attempts_left, kind, position)
VALUES (:queue, :type, :attempts_left, :kind, :distance)
ON CONFLICT (queue, type, attempts_left, kind) DO UPDATE SET position = position + excluded.position
