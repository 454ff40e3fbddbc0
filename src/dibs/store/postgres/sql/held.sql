-- Promise: who holds which task. Rows: (worker_id, incarnation, task id, queue). Index: dibs_tasks_leases.
SELECT worker_id, incarnation, id, queue FROM dibs_tasks WHERE state = 'claimed' ORDER BY id
