-- Promise: the tasks that have these idempotency keys. Parameters: keys. Rows: (key_content, key, task columns).
-- Index: dibs_tasks_key.
SELECT key_content, key, {{task}} FROM dibs_tasks WHERE key IN (SELECT value FROM json_each(:keys))
