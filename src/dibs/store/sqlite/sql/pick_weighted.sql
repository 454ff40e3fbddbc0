-- Promise: the tasks of one line that come first in its weighted race. Rows: (id, how far they are from winning).
-- Index: dibs_tasks_by_weight, `count` entries.
--
-- Every pending task drew an exponential number with its weight as the rate, on top of where the race stood when
-- it became pending. The smallest one wins, with a probability proportional to its weight; by the lack of memory
-- of that distribution the same holds for the next winner, if the race moves on to where the last one won
-- (advance_race.sql).
SELECT id, weighted_key - coalesce((SELECT position FROM dibs_races
    WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left), 0)
FROM dibs_tasks INDEXED BY dibs_tasks_by_weight
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
ORDER BY weighted_key LIMIT :count
