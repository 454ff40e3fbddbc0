-- Promise: what this worker claimed under this name and still holds, as the claim itself answered.
-- Parameters: worker_id, incarnation, request, now. Rows: history columns, task columns. Index: dibs_tasks_requests.
-- Safe: only a look, before the claim. A repeat that overtakes its original, or comes before the original's commit,
-- finds nothing and claims other tasks. Nobody holds a task twice by that: each claim has tokens of its own, and those
-- whose answer nobody received come back when their lease ends. To make the repeat wait would need a lock for every
-- claim, for the sake of a sender that did not wait for its own answer.
WITH {{moment}}
SELECT task.id, 'claimed', 'pending', task.state, task.worker_id, task.token, NULL::text, {{task}}
FROM dibs_tasks AS task
WHERE task.state = 'claimed' AND task.worker_id = %(worker_id)s AND task.request = %(request)s
  AND task.incarnation IS NOT DISTINCT FROM %(incarnation)s AND task.lease_until > (SELECT now FROM moment)
ORDER BY task.id
