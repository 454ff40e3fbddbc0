-- Promise: how these tasks stand, until the transaction ends. Parameters: ids.
-- Rows: (id, state, queue, workflow_id, cancel_requested). Index: the primary key.
-- Safe: the rows are locked in the order of their ids, as everybody else locks them.
SELECT id, state, queue, workflow_id, cancel_requested FROM dibs_tasks
WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE
