-- Promise: those of these failed tasks that were discarded are in the dead letter again, to be retried next.
-- Parameters: ids, now, by. Rows: history columns. Index: the primary key.
-- Safe: the retry that follows clears set_aside as well, so a task that is discarded between the two is not pending and
-- discarded at once.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET set_aside = NULL
    WHERE task.id = ANY(%(ids)s::bigint[]) AND {{still: 'failed'}} AND task.set_aside = 'discarded'
    RETURNING task.id AS task_id, 'restored' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
