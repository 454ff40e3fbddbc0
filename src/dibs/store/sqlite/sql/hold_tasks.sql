-- Promise: how these tasks stand, until the transaction ends. Parameters: ids.
-- Rows: (id, state, queue, workflow_id, cancel_requested). Index: the primary key. Safe: this transaction alone writes.
SELECT id, state, queue, workflow_id, cancel_requested FROM dibs_tasks WHERE id IN (SELECT value FROM json_each(:ids))
