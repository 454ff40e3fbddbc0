-- Log lines: what the handlers of a task have logged, attempt by attempt.
-- Locks: the tasks of the lines, in the order of their ids, FOR KEY SHARE: neither a claim that holds, renews or
-- finishes them nor another write of lines waits for it, only their deletion does. A claim or an upkeep that skips locked
-- tasks may skip such a task for the moment of the write, and finds it the next time.

-- name: add_log_lines
-- Promise: each line is stored under its task and token, if the task exists and has issued the token, and the attempt is
-- possible under it (every attempt has a token of its own); a line that is stored already stays as it is. Parameters: items (a JSON array of objects with task_id, token, number, attempt, at,
-- level, logger, message). Rows: (task_id) of each line that was not stored before. Indexes: the primary keys.
-- Safe: the lock on the task is held until the commit. A prune that deletes the task waits for it or skips the task, and
-- then deletes the lines; after a prune the task is not found here, so no line is without its task. The tasks of a
-- workflow are pruned in another order than that of their ids: PostgreSQL ends one of two transactions that wait for each
-- other, and either can be repeated.
WITH items AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:items::json) AS items
        (task_id bigint, token bigint, number integer, attempt integer, at bigint, level smallint, logger text, message text)
),
task AS MATERIALIZED (
    SELECT id, token FROM dibs_tasks WHERE id = ANY(ARRAY(SELECT task_id FROM items)) ORDER BY id FOR KEY SHARE
)
INSERT INTO dibs_log_lines (task_id, token, number, attempt, at, level, logger, message)
SELECT task.id, items.token, items.number, items.attempt, items.at, items.level, items.logger, items.message
FROM items JOIN task ON task.id = items.task_id AND task.token >= items.token AND items.attempt <= items.token
ORDER BY items.task_id, items.token, items.number
ON CONFLICT DO NOTHING
RETURNING task_id
