-- Promise: the tasks that have these idempotency keys. Parameters: keys. Rows: (key_content, key, task columns).
-- Index: dibs_tasks_key. A statement of its own: it must see what others committed while `enqueue` waited for them.
SELECT task.key_content, task.key, {{task}} FROM dibs_tasks AS task WHERE task.key = ANY(%(keys)s::text[])
