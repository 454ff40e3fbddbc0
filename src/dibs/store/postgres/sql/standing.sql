-- Promise: under which claim these tasks are held now, and whether somebody asked them to stop.
-- Parameters: ids. Rows: (id, token, worker_id, cancel_requested); none for a task that nobody holds.
-- Index: the primary key.
SELECT id, token, worker_id, cancel_requested FROM dibs_tasks
WHERE id = ANY(%(ids)s::bigint[]) AND {{still: 'claimed'}}
