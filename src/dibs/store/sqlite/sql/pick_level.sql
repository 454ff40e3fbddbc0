-- Promise: the tasks of one line with the next priority after `after`, downwards or upwards, newest or oldest first.
-- Parameters: the line, after, count. Words: beyond and levels (the way through the priorities), within (the order in
-- each), from a fixed table. Rows: (id, priority).
-- Index: dibs_tasks_by_priority, one probe for the next priority and `count` entries. Within a priority it is read either
-- way, so that orders by priority need no index of their own.
SELECT id, priority FROM dibs_tasks INDEXED BY dibs_tasks_by_priority
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND priority = (
    SELECT priority FROM dibs_tasks INDEXED BY dibs_tasks_by_priority
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
      AND priority {{beyond}} :after
    ORDER BY {{levels}} LIMIT 1)
ORDER BY {{within}} LIMIT :count
