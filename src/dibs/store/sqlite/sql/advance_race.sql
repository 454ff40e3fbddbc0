-- Promise: a race of a line moves on by `distance`. Parameters: the line, kind, distance. Rows: none.
UPDATE dibs_races SET position = position + :distance
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
