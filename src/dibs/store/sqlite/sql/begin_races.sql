-- Promise: the line has a race of this kind; a new one stands at 0, and no task has drawn a number.
-- Parameters: the line, kind. Rows: none.
INSERT INTO dibs_races (queue, type, attempts_left, kind, position, drawn_to)
VALUES (:queue, :type, :attempts_left, :kind, 0, 0)
ON CONFLICT (queue, type, attempts_left, kind) DO NOTHING
