-- Promise: how many tasks have a token that is not the highest one their history issued. Rows: (count).
SELECT count(*) FROM dibs_tasks AS task
WHERE token <> coalesce((SELECT max(token) FROM dibs_history WHERE task_id = task.id), token)
