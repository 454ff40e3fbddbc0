-- Promise: these tasks are no steps any more. Parameters: ids. Rows: none. Their edges go with them, see forget_edges.sql.
DELETE FROM dibs_steps WHERE task_id = ANY(%(ids)s::bigint[])
