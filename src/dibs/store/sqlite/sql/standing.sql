-- Promise: under which claim these tasks are held now, and whether somebody asked them to stop.
-- Parameters: ids. Rows: (id, token, worker_id, cancel_requested); none for a task that nobody holds.
-- Index: the primary key; the plus keeps the planner from walking through dibs_tasks_leases instead.
SELECT id, token, worker_id, cancel_requested FROM dibs_tasks
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'claimed'
