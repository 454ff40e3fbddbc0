-- Promise: each step waits for `more` further parents. Parameters: of each task_id, more. Rows: none.
UPDATE dibs_steps SET waits = waits + :more WHERE task_id = :task_id
