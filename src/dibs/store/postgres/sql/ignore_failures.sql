-- Promise: these failed steps are no dead letters: their workflows went on without them. Parameters: ids, now, by.
-- Rows: history columns. Index: the primary key.
-- Safe: the workflow is held, and settle_steps.sql has settled each of these steps once, in the same transaction.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task SET set_aside = 'ignored'
    WHERE task.id = ANY(%(ids)s::bigint[]) AND {{still: 'failed'}}
    RETURNING task.id AS task_id, 'ignored' AS event, 'failed' AS from_state, task.state AS to_state,
        NULL::text AS by_worker, task.token AS under_token, NULL::text AS detail
),
{{noted}}
SELECT * FROM changed
