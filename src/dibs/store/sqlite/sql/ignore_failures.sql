-- Promise: these failed steps are no dead letters: their workflows went on without them. Parameters: ids, now.
-- Rows: history columns. Index: the primary key.
-- Safe: settle_steps.sql has settled each of these steps once, in the same transaction, which alone writes.
UPDATE dibs_tasks SET set_aside = 'ignored'
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'failed'
RETURNING id, 'ignored', 'failed', state, NULL, token, NULL
