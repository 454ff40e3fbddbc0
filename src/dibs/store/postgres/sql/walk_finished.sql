-- Promise: when the last task of the next stretch of tasks in this final state finished: the task `span` places after the
-- first that finished after `after`.
-- Parameters: state, after, kept (the shortest retention in the state), now. Words: span.
-- Rows: (finished_at); none where that task has not been finished for `kept`, or there are fewer tasks.
-- Index: dibs_tasks_finished, in its order. The upper bound is compared afterwards, because PostgreSQL expects few rows
-- between two bounds, and would read and sort all of them.
WITH {{moment}},
last AS MATERIALIZED (
    SELECT finished_at FROM dibs_tasks
    WHERE state IN ('completed', 'failed', 'cancelled') AND state = %(state)s AND finished_at > %(after)s
    ORDER BY finished_at LIMIT 1 OFFSET {{span}}
)
SELECT last.finished_at FROM last, moment WHERE last.finished_at <= moment.now - %(kept)s
