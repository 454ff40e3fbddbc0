-- Promise: the workflow's steps that wait in this state are cancelled. Parameters: id, from_state, now.
-- Rows: history columns. Index: dibs_steps_open.
UPDATE dibs_tasks SET state = 'cancelled', finished_at = :now
WHERE id IN (SELECT task_id FROM dibs_steps WHERE workflow_id = :id AND passed IS NULL) AND +state = :from_state
RETURNING id, 'cancelled', :from_state, state, NULL, token, '{"by":"workflow"}'
