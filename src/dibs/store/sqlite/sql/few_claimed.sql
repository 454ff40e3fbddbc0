-- Promise: the claimed tasks, up to `limit`: less than that are all of them. Parameters: limit.
-- Rows: (id). Index: dibs_tasks_leases, read as it lies.
SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_leases WHERE state = 'claimed'
ORDER BY lease_until LIMIT {{limit}}
