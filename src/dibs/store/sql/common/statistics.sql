-- Counts, trends and samples for dashboards and metrics.
-- Locks: none beyond the rows that a statement writes.

-- name: counts
-- Promise: the number of tasks by queue, type and state, the longest wait of a pending task, and how many failed tasks
-- are not in the dead letter. Parameters: now. Rows: (queue, type, state, count, age of the oldest pending, set aside,
-- parked).
{{with_moment}}
SELECT queue, type, state, count(*), CASE state WHEN 'pending' THEN {{now}} - min(ready_at) END,
       count(set_aside), count(*) FILTER (WHERE parked AND backlog IS NULL)
FROM dibs_tasks GROUP BY queue, type, state

-- name: throughput
-- Promise: how many tasks reached each final state within the window. Parameters: window, queues, now.
-- Rows: (state, count). Index: dibs_tasks_finished.
{{with_moment}}
SELECT state, count(*) FROM dibs_tasks {{indexed_by: dibs_tasks_finished}}
WHERE state IN ('completed', 'failed', 'cancelled') AND finished_at > {{now}} - :window {{conditions}}
GROUP BY state

-- name: count_failed
-- Promise: the number of tasks in the dead letter, counted up to `limit`. Parameters: limit. Rows: (count).
-- Index: dibs_tasks_dead.
SELECT count(*)
FROM (SELECT id FROM dibs_tasks {{indexed_by: dibs_tasks_dead}}
      WHERE state = 'failed' AND set_aside IS NULL ORDER BY finished_at DESC LIMIT {{limit}}) AS dead

-- name: moves
-- Promise: the transitions after this entry, up to `limit` entries, counted by queue, event and states; the queue is
-- that after the transition, and NULL if the task is deleted; from_queue is NULL unless the task moved to another queue.
-- Parameters: after, limit. Rows: (queue, event, from_state, to_state, from_queue, count, highest entry).
-- Indexes: both primary keys, dibs_history_moved. The queue is looked up for each entry: a join might begin with the
-- tasks.
SELECT queue, event, from_state, to_state, from_queue, count(*), max(id)
FROM (SELECT id, event, from_state, to_state, {{queue_after}} AS queue, {{queue_left: past}} AS from_queue
      FROM dibs_history AS past WHERE id > :after ORDER BY id LIMIT {{limit}}) AS moved
GROUP BY queue, event, from_state, to_state, from_queue

-- fragment: queue_after
-- The queue of the task after the entry `past`: the queue that the next move to another queue left, else the present
-- one. Index: dibs_history_moved, which has the moves only. Whether there is any is read once for the statement: on
-- PostgreSQL a probe for each entry would double its time.
coalesce(CASE WHEN EXISTS (SELECT 1 FROM dibs_history AS move {{indexed_by: dibs_history_moved}} WHERE {{is_move: move}})
              THEN (SELECT {{queue_left: later}} FROM dibs_history AS later {{indexed_by: dibs_history_moved}}
                    WHERE later.task_id = past.task_id AND later.id + 0 > past.id AND {{is_move: later}}
                    ORDER BY later.id + 0 LIMIT 1) END,
         (SELECT queue FROM dibs_tasks WHERE id = past.task_id))

-- fragment: is_move
-- A condition: the entry of the history is a change that moved the task to another queue. The detail then begins with
-- the queues. The partial index dibs_history_moved has the condition.
{{argument}}.event = 'changed' AND substr({{argument}}.detail, 1, 9) = '{"queue":'

-- name: save_sample
-- Promise: the sample of this minute is stored; the first server wins. Parameters: at, body.
-- Rows: (at); none for every other server. Index: the primary key, where the second of two waits for the first.
INSERT INTO dibs_samples (at, body) VALUES (:at, :body)
ON CONFLICT (at) DO NOTHING
RETURNING at

-- name: samples_since
-- Promise: the samples from this moment on, in order. Parameters: at. Words: body (the column, or
-- `body_without_queues`).
-- Rows: (at, body). Index: the primary key.
SELECT at, {{body}} FROM dibs_samples WHERE at >= :at ORDER BY at

-- fragment: body_without_queues
-- A sample without its queues, which come last: they are nine tenths of the text, and a chart of the whole store needs
-- none of them.
substr(body, 1, coalesce(nullif({{strpos}}(body, ',"queues":'), 0) - 1, length(body)))

-- name: prune_samples
-- Promise: up to `limit` samples from before this moment are deleted, the oldest first.
-- Parameters: before, limit. Rows: (at). Index: the primary key. Safe: rows that another prune is deleting are skipped.
DELETE FROM dibs_samples
WHERE at {{in_select: SELECT at FROM dibs_samples WHERE at < :before ORDER BY at LIMIT {{limit}} {{skip_locked}}}}
RETURNING at
