-- Promise: the task with this id, or with the next below. Parameters: id. Rows: (id, created_at).
-- Index: the primary key.
SELECT id, created_at FROM dibs_tasks WHERE id <= %(id)s ORDER BY id DESC LIMIT 1
