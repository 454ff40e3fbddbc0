-- Promise: the first tasks of one line (queue, type, attempts left) in the order asked for.
-- Parameters: the line, count. Words: index and order, from a fixed table. Rows: (id, priority).
-- Index: the order's own; it is read from its end, `count` entries, nothing is sorted.
SELECT id, priority FROM dibs_tasks INDEXED BY {{index}}
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
ORDER BY {{order}} LIMIT :count
