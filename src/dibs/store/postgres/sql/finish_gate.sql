-- Promise: the step that stands for a sub-workflow ends as its workflow did; also if that was cancelled before it began.
-- Parameters: id, from_state (claimed or blocked), state, result, error, now. Rows: history columns.
-- Safe: the tree is held, and a workflow ends once.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = %(state)s, attempts = task.attempts + (%(from_state)s::text = 'claimed')::integer, result = %(result)s,
        error = %(error)s, finished_at = moment.now
    FROM moment
    WHERE task.id = %(id)s AND {{still: %(from_state)s}}
    RETURNING task.id AS task_id, task.state AS event, %(from_state)s::text AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, task.error AS detail
),
{{noted}}
SELECT * FROM changed
