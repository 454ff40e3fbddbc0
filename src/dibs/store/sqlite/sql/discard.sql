-- Promise: those of these tasks that are in the dead letter are discarded: they stay failed and leave the dead letter.
-- Parameters: ids, now. Rows: history columns. Index: the primary key. Safe: this transaction alone writes.
UPDATE dibs_tasks SET set_aside = 'discarded'
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'failed' AND set_aside IS NULL
RETURNING id, 'discarded', 'failed', state, NULL, token, NULL
