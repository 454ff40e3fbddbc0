-- Promise: `count` ids that no task has. Parameters: count. Rows: (id).
-- Safe: read under the write lock, and the tasks are inserted in the same transaction.
WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < :count)
SELECT coalesce((SELECT seq FROM {{sequence}} WHERE name = 'dibs_tasks'), 0) + n FROM counted
