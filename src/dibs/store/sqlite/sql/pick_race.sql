-- Promise: the tasks of one line that come first in its race. Words: index, key. Parameters: the line, position of the
-- race, count. Rows: (id, how far it is from winning). Index: the race's own, `count` entries.
--
-- Every pending task of a line that races drew an exponential number on top of where the race stood when it became
-- pending; its rate is 1 in the random race and the task's weight in the weighted one. The smallest number wins, with a
-- probability proportional to its rate; by the lack of memory of that distribution the same holds for the next winner,
-- if the race moves on to where the last one won (advance_race.sql). In a line that does not race nobody has a number.
SELECT id, {{key}} - :position
FROM dibs_tasks INDEXED BY {{index}}
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND {{key}} IS NOT NULL
ORDER BY {{key}} LIMIT :count
