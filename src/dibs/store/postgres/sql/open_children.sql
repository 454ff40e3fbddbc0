-- Promise: the children of these steps wait for that many parents less. Parameters: ids (of steps that have passed).
-- Rows: (task_id, workflow_id, kind, waits, passed) of the children. The cost is that of the edges, however large the graph:
-- a join would be planned for a two-hundredth of a graph that no ANALYZE has seen yet, and so read all its steps.
-- Index: dibs_edges_pkey, dibs_steps_pkey.
-- Also of those that were given up: if their workflow is retried, they must not wait for what is done.
WITH done AS MATERIALIZED (
    SELECT child_id, count(*) AS parents FROM dibs_edges WHERE parent_id = ANY(%(ids)s::bigint[]) GROUP BY child_id
)
UPDATE dibs_steps AS step
SET waits = step.waits - ((SELECT jsonb_object_agg(child_id, parents) FROM done) ->> step.task_id::text)::integer
WHERE step.task_id = ANY(ARRAY(SELECT child_id FROM done))
RETURNING step.task_id, step.workflow_id, step.kind, step.waits, step.passed
