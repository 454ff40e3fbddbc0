-- Promise: the first line of the history of each of these new tasks. Parameters: first and last id, now, by. Rows: none.
-- Safe: same transaction as the insert, which gave out exactly the ids in between.
INSERT INTO dibs_history (task_id, event, from_state, to_state, token, by, at)
SELECT id, 'enqueued', NULL, state, 0, :by, :now FROM dibs_tasks WHERE id BETWEEN :first AND :last
