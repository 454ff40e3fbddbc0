-- Promise: the highest task id ever given out. Rows: (id), none before the first task.
-- Safe: read under the write lock, and AUTOINCREMENT keeps the number when its task is pruned.
SELECT seq FROM sqlite_sequence WHERE name = 'dibs_tasks'
