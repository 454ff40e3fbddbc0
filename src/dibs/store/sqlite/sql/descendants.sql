-- Promise: whether one of these steps waits for the step `id`, directly or through others. Parameters: ids, id.
-- Rows: (id); none if none does. Index: dibs_edges_child. The cost is that of the edges above them, up to what has passed.
WITH RECURSIVE above (id) AS (
    SELECT value FROM json_each(:ids)
    UNION
    SELECT edge.parent_id FROM above JOIN dibs_edges AS edge ON edge.child_id = above.id
    JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id AND parent.passed IS NOT 1
)
SELECT id FROM above WHERE id = :id LIMIT 1
