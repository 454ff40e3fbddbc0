-- Promise: what the parents of this step came to. Parameters: id. Index: dibs_edges_child.
-- Rows: (task_id, name, type, state, result, error, queue).
SELECT parent.task_id, parent.name, task.type, task.state, task.result, task.error, task.queue
FROM dibs_edges AS edge
JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
JOIN dibs_tasks AS task ON task.id = parent.task_id
WHERE edge.child_id = %(id)s
ORDER BY parent.task_id
