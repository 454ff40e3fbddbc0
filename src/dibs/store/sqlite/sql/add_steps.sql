-- Promise: these tasks are steps. Parameters: of each task_id, workflow_id, name, kind, on_failure, waits, delay.
INSERT INTO dibs_steps (task_id, workflow_id, name, kind, on_failure, waits, delay)
VALUES (:task_id, :workflow_id, :name, :kind, :on_failure, :waits, :delay)
