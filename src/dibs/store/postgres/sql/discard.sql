-- Promise: those of these tasks that are in the dead letter are discarded: they stay failed and leave the dead letter.
-- Parameters: ids, now, by. Rows: history columns. Index: the primary key.
-- Safe: state and set_aside are checked again under the row's lock, so a task is discarded once, and a task that is
-- retried at the same moment is either discarded before that or not at all. Where ids are many, hold_tasks.sql has
-- locked the rows in the order of their ids.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET set_aside = 'discarded'
    WHERE task.id = ANY(%(ids)s::bigint[]) AND {{still: 'failed'}} AND task.set_aside IS NULL
    RETURNING task.id AS task_id, 'discarded' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
