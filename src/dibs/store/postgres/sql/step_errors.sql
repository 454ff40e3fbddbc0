-- Promise: what went wrong last with these tasks, the beginning of it. Parameters: ids. Rows: (id, text). Index: the primary key.
SELECT id, left((error::json ->> 'type') || ': ' || (error::json ->> 'message'), 200)
FROM dibs_tasks WHERE id = ANY(%(ids)s::bigint[]) AND error IS NOT NULL
