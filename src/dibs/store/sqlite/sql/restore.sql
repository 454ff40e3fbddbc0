-- Promise: those of these failed tasks that were discarded are in the dead letter again, to be retried next.
-- Parameters: ids, now. Rows: history columns. Index: the primary key. Safe: this transaction alone writes.
UPDATE dibs_tasks SET set_aside = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'failed' AND set_aside = 'discarded'
RETURNING id, 'restored', 'failed', state, NULL, token, NULL
