-- Promise: how many tasks are not in the state where their history ends. Rows: (count).
SELECT count(*) FROM dibs_tasks AS task
WHERE state <> coalesce((SELECT to_state FROM dibs_history WHERE task_id = task.id ORDER BY id DESC LIMIT 1), state)
