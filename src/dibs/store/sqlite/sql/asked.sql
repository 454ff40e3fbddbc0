-- Promise: what this worker claimed under this name and still holds, as the claim itself answered.
-- Parameters: worker_id, incarnation, request, now. Rows: history columns, task columns. Index: dibs_tasks_requests.
-- Safe: read under the write lock, in the transaction that claims if there is nothing here. A repeat that overtakes its
-- original finds nothing and claims other tasks; the original then finds those.
SELECT id, 'claimed', 'pending', state, worker_id, token, NULL, {{task}}
FROM dibs_tasks INDEXED BY dibs_tasks_requests
WHERE state = 'claimed' AND worker_id = :worker_id AND request = :request AND incarnation IS :incarnation
  AND lease_until > :now
ORDER BY id
