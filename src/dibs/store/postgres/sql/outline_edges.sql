-- Promise: who waits for whom among the workflow's steps up to the last one that is shown. Parameters: id, last, limit.
-- Rows: one, (parents, children), each as JSON: two long lists take half the time of many short rows.
-- Index: dibs_steps_names, and dibs_edges_child, one by one (OFFSET 0; see outline.sql).
WITH own AS MATERIALIZED (SELECT task_id FROM dibs_steps WHERE workflow_id = %(id)s AND task_id <= %(last)s)
SELECT coalesce(json_agg(parent_id)::text, '[]'), coalesce(json_agg(child_id)::text, '[]')
FROM (
    SELECT edge.parent_id, step.task_id AS child_id
    FROM own AS step
    CROSS JOIN LATERAL (SELECT parent_id FROM dibs_edges WHERE child_id = step.task_id OFFSET 0) AS edge
    ORDER BY step.task_id, edge.parent_id LIMIT {{limit}}
) AS shown
