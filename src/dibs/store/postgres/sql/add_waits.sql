-- Promise: each step waits for `more` further parents. Parameters: of each task_id, more. Rows: none.
UPDATE dibs_steps AS step SET waits = step.waits + added.more
FROM json_to_recordset(%(said)s::json) AS added (task_id bigint, more int)
WHERE step.task_id = added.task_id
