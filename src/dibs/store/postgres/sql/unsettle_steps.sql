-- Promise: these steps have not ended; a finalizer waits again. Parameters: ids. Rows: none.
UPDATE dibs_steps SET passed = NULL, waits = CASE kind WHEN 'finalizer' THEN 1 ELSE waits END
WHERE task_id = ANY(%(ids)s::bigint[])
