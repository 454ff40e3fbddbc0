-- Promise: when the last task of the next stretch of tasks in this final state finished: the task `span` places after the
-- first that finished after `after`.
-- Parameters: state, after, kept (the shortest retention in the state), now. Words: span.
-- Rows: (finished_at); none where that task has not been finished for `kept`, or there are fewer tasks.
-- Index: dibs_tasks_finished, alone.
SELECT finished_at
FROM (SELECT finished_at FROM dibs_tasks INDEXED BY dibs_tasks_finished
      WHERE state IN ('completed', 'failed', 'cancelled') AND state = :state AND finished_at > :after
      ORDER BY finished_at LIMIT 1 OFFSET {{span}})
WHERE finished_at <= :now - :kept
