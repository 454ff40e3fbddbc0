-- Promise: the children of these steps wait for that many parents less. Parameters: ids (of steps that have passed).
-- Rows: (task_id, workflow_id, kind, waits, passed) of the children. The cost is that of the edges, however large the graph.
-- Also of those that were given up: if their workflow is retried, they must not wait for what is done.
UPDATE dibs_steps
SET waits = waits - done.parents
FROM (SELECT child_id, count(*) AS parents FROM dibs_edges WHERE parent_id IN (SELECT value FROM json_each(:ids))
      GROUP BY child_id) AS done
WHERE task_id = done.child_id
RETURNING task_id, workflow_id, kind, waits, passed
