-- Promise: the moment, the highest task id ever given out (0 before the first), and whether any line races. Parameters:
-- now. Rows: (now, id, racing). Safe: read under the write lock, and AUTOINCREMENT keeps the number when its task is
-- pruned.
SELECT :now, coalesce((SELECT seq FROM {{sequence}} WHERE name = 'dibs_tasks'), 0), EXISTS (SELECT 1 FROM dibs_races)
