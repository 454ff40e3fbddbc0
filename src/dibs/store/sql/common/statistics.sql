-- Counts, trends and samples for dashboards and metrics.
-- Locks: none; these statements read.

-- name: moves
-- Promise: what happened after this entry, up to `limit` entries, counted by queue, event and states; the queue is NULL
-- where the task is gone. Parameters: after, limit.
-- Rows: (queue, event, from_state, to_state, count, highest entry).
-- Indexes: both primary keys. The queue is looked up for each entry: a join might begin with the tasks.
SELECT queue, event, from_state, to_state, count(*), max(id)
FROM (SELECT id, event, from_state, to_state, (SELECT queue FROM dibs_tasks WHERE id = past.task_id) AS queue
      FROM dibs_history AS past WHERE id > :after ORDER BY id LIMIT {{limit}}) AS moved
GROUP BY queue, event, from_state, to_state

-- name: note_sample
-- Promise: the sample of this minute is stored, by the first who has one. Parameters: at, body.
-- Rows: (at); none for everybody else. Index: the primary key, where the second of two waits for the first.
INSERT INTO dibs_samples (at, body) VALUES (:at, :body)
ON CONFLICT (at) DO NOTHING
RETURNING at

-- name: samples_since
-- Promise: the samples from this moment on, in order. Parameters: at. Rows: (at, body). Index: the primary key.
SELECT at, body FROM dibs_samples WHERE at >= :at ORDER BY at
