-- Promise: the tasks that have these idempotency keys in these queues. Parameters: said (a JSON array of objects with
-- key, queue). Rows: (key_content, key, task columns). Index: dibs_tasks_key.
-- A statement of its own: it must see what another committed while `enqueue` waited for it.
SELECT task.key_content, task.key, {{task}}
FROM json_to_recordset(%(said)s::json) AS asked (key text, queue text)
JOIN dibs_tasks AS task ON task.key = asked.key AND task.queue = asked.queue
