-- Promise: the parents that this step still waits for. Parameters: id, limit. Rows: (name, task_id, state, queue).
SELECT parent.name, parent.task_id, task.state, task.queue
FROM dibs_edges AS edge
JOIN dibs_steps AS parent ON parent.task_id = edge.parent_id
JOIN dibs_tasks AS task ON task.id = parent.task_id
WHERE edge.child_id = :id AND (parent.passed IS NULL OR NOT parent.passed)
ORDER BY parent.task_id LIMIT {{limit}}
