-- Promise: the tasks of one line that follow a random point, by their random keys. Rows: (id, random_key).
-- Index: dibs_tasks_by_random, `count` entries from the point on.
SELECT id, random_key FROM dibs_tasks INDEXED BY dibs_tasks_by_random
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
  AND random_key >= :low AND random_key < :high
ORDER BY random_key LIMIT :count
