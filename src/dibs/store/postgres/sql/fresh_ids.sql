-- Promise: `count` ids that no task has. Parameters: count. Rows: (id).
SELECT nextval('dibs_tasks_id_seq') FROM generate_series(1, %(count)s::integer)
