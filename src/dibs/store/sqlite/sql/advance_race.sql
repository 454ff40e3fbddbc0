-- Promise: the race of a line moves on by `distance`. Parameters: the line, distance. Rows: none.
INSERT INTO dibs_races (queue, type, attempts_left, position) VALUES (:queue, :type, :attempts_left, :distance)
ON CONFLICT (queue, type, attempts_left) DO UPDATE SET position = position + excluded.position
