-- Promise: what these tasks have kept is gone. Parameters: ids. Rows: none.
DELETE FROM dibs_checkpoints WHERE task_id IN (SELECT value FROM json_each(:ids))
