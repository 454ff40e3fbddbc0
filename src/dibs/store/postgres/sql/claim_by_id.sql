-- Promise: this task now belongs to this worker, if it was pending and its queue is not paused.
-- Parameters: id, worker_id, incarnation, lease, request, now, by. Rows: history columns, task columns; none if not claimable.
-- Safe: one statement; the loser of a race waits for the winner's commit and finds the task no longer pending.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = %(worker_id)s, incarnation = %(incarnation)s,
        claimed_at = moment.now, lease_until = moment.now + %(lease)s, ahead = false,
        request = %(request)s, progress = NULL, progress_message = NULL
    FROM moment
    WHERE task.id = %(id)s AND {{still: 'pending'}}
      AND NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = task.queue AND paused_at IS NOT NULL)
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, {{task}}
),
{{noted}}
SELECT * FROM changed
