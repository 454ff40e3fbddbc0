-- Promise: the finalizer waits for nothing any more. Parameters: id. Rows: none.
UPDATE dibs_steps SET waits = 0 WHERE task_id = :id
