-- Promise: the tasks that have these idempotency keys in these queues. Parameters: said (a JSON array of objects with
-- key, queue). Rows: (key_content, key, task columns). Index: dibs_tasks_key.
WITH asked (asked_key, asked_queue) AS (
    SELECT json_extract(value, '$.key'), json_extract(value, '$.queue') FROM json_each(:said))
SELECT key_content, key, {{task}}
FROM asked CROSS JOIN dibs_tasks INDEXED BY dibs_tasks_key ON key = asked_key AND queue = asked_queue
