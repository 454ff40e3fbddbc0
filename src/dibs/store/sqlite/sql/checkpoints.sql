-- Promise: what the attempts of this task have kept. Parameters: id. Rows: (name, value).
SELECT name, value FROM dibs_checkpoints WHERE task_id = :id ORDER BY at, name
