-- Promise: nobody else changes the trees of workflows with these roots before this transaction ends.
-- Parameters: ids, sorted. Rows: (id).
-- Safe: whoever ends a step, adds one, stops, retries or ends a workflow holds the root's row first, before it touches
-- any task; roots are held in the order of their ids. So two of them wait for each other one way round, and what each
-- reads after this statement is what the other has committed: no parent's end, no new edge is overlooked. A statement of
-- its own: one that had to wait for the lock would go on with what it saw before.
SELECT id FROM dibs_workflows WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE
