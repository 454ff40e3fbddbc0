-- Promise: these tasks are steps. Parameters: of each task_id, workflow_id, name, kind, on_failure, waits, delay.
INSERT INTO dibs_steps (task_id, workflow_id, name, kind, on_failure, waits, delay)
SELECT task_id, workflow_id, name, kind, on_failure, waits, delay
FROM json_to_recordset(%(said)s::json)
    AS step (task_id bigint, workflow_id bigint, name text, kind text, on_failure text, waits int, delay bigint)
