-- Promise: the next number of attempts left among the pending tasks of this queue and type. Rows: (number or NULL).
-- Index: one probe of dibs_tasks_by_age.
SELECT min(attempts_left) FROM dibs_tasks INDEXED BY dibs_tasks_by_age
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left > :after
