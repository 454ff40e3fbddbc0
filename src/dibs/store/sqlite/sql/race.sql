-- Promise: where the race of a line stands, and how far its numbers are drawn. Parameters: the line, kind.
-- Rows: (position, drawn_to); none if the line does not race.
SELECT position, drawn_to FROM dibs_races
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
