-- What the clock does: promote tasks that are due, recover tasks whose lease ran out; checks of the doctor.
-- Locks: those of the engine, see the file of the same theme there.

-- fragment: that_go_on
-- Which tasks `recover` takes: all but steps that would end with it, which their workflow must learn of in the same
-- transaction (see `lost_steps`).
AND (workflow_id IS NULL OR NOT (cancel_requested OR (attempts_left <= 1 AND NOT ahead)))

-- name: books_tokens
-- Promise: how many tasks have a token that is not the highest one their history issued. Rows: (count).
SELECT count(*) FROM dibs_tasks AS task
WHERE token <> coalesce((SELECT max(token) FROM dibs_history WHERE task_id = task.id), token)
