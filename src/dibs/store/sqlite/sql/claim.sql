-- Claims: which tasks a worker gets, and the random orders.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: claim
-- Promise: the picked tasks now belong to this worker, each under its next token.
-- Parameters: ids, worker_id, incarnation, lease, ahead, request, now. Rows: history columns, task columns.
-- Safe: the write lock is held since before the tasks were picked; `state = 'pending'` says so once more.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = :worker_id, incarnation = :incarnation, claimed_at = :now,
    lease_until = :now + :lease, ahead = :ahead, request = :request, progress = NULL, progress_message = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'pending'
RETURNING id, 'claimed', 'pending', state, worker_id, token, NULL, {{task}}

-- name: claim_by_id
-- Promise: this task now belongs to this worker, if it was pending and its queue is not paused.
-- Parameters: id, worker_id, incarnation, lease, request, now. Rows: history columns, task columns; none if not
-- claimable.
-- Safe: one statement under the write lock; the loser of a race finds the task no longer pending.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = :worker_id, incarnation = :incarnation, claimed_at = :now,
    lease_until = :now + :lease, ahead = 0, request = :request, progress = NULL, progress_message = NULL
WHERE id = :id AND state = 'pending'
  AND NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = dibs_tasks.queue AND paused_at IS NOT NULL)
RETURNING id, 'claimed', 'pending', state, worker_id, token, NULL, {{task}}

-- name: claims_of_request
-- Promise: what this worker claimed under this name and still holds, as the claim itself answered.
-- Parameters: worker_id, incarnation, request, now. Rows: history columns, task columns. Index: dibs_tasks_requests.
-- Safe: read under the write lock, in the transaction that claims if there is nothing here. A repeat that overtakes its
-- original finds nothing and claims other tasks; the original then finds those.
SELECT id, 'claimed', 'pending', state, worker_id, token, NULL, {{task}}
FROM dibs_tasks INDEXED BY dibs_tasks_requests
WHERE state = 'claimed' AND worker_id = :worker_id AND request = :request AND incarnation IS :incarnation
  AND lease_until > :now
ORDER BY id

-- name: paused
-- Promise: the queues nobody may claim from. Rows: (name).
SELECT name FROM dibs_queues WHERE paused_at IS NOT NULL

-- name: next_queue
-- Promise: the first queue after this one that has a pending task. Rows: (queue or NULL).
-- Index: one probe of dibs_tasks_by_age, however many tasks a queue holds.
SELECT min(queue) FROM dibs_tasks INDEXED BY dibs_tasks_by_age WHERE state = 'pending' AND queue > :after

-- name: next_type
-- Promise: the first type after this one that has a pending task in the queue. Rows: (type or NULL).
-- Index: one probe of dibs_tasks_by_age.
SELECT min(type) FROM dibs_tasks INDEXED BY dibs_tasks_by_age
WHERE state = 'pending' AND queue = :queue AND type > :after

-- name: next_attempts_left
-- Promise: the next number of attempts left among the pending tasks of this queue and type. Rows: (number or NULL).
-- Index: one probe of dibs_tasks_by_age.
SELECT min(attempts_left) FROM dibs_tasks INDEXED BY dibs_tasks_by_age
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left > :after

-- name: pick
-- Promise: the first tasks of one partition (queue, type, attempts left) in the requested order.
-- Parameters: the partition, count. Words: index and order, from a fixed table. Rows: (id, priority).
-- Index: that of the order; `count` entries are read from its end, and nothing is sorted.
SELECT id, priority FROM dibs_tasks INDEXED BY {{index}}
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
ORDER BY {{order}} LIMIT :count

-- name: pick_level
-- Promise: the tasks of one partition with the next priority after `after`, downwards or upwards, newest or oldest
-- first.
-- Parameters: the partition, after, count. Words: beyond and levels (how to step from one priority to the next), within
-- (the order within a priority), from a fixed table. Rows: (id, priority).
-- Index: dibs_tasks_by_priority, one probe for the next priority and `count` entries. Within a priority the index is
-- read in either direction, so that orders by priority need no index of their own.
SELECT id, priority FROM dibs_tasks INDEXED BY dibs_tasks_by_priority
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND priority = (
    SELECT priority FROM dibs_tasks INDEXED BY dibs_tasks_by_priority
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
      AND priority {{beyond}} :after
    ORDER BY {{levels}} LIMIT 1)
ORDER BY {{within}} LIMIT :count

-- name: pick_race
-- Promise: the first tasks of one partition in random or weighted order. Words: index, key. Parameters: the partition,
-- position, count. Rows: (id, distance of its number from the position). Index: that of the column, `count` entries.
--
-- A row of dibs_races is the state of one random order (`kind`) in one partition. When a task becomes pending, the task
-- gets a random-order number: the position of the partition plus an exponential random number, whose rate is 1 in
-- random order and the weight of the task in weighted order. The task with the smallest number is claimed first; the
-- probability of that is proportional to its rate. The exponential distribution has no memory, so the same holds for
-- the next claim, if the position advances to the number of the claimed task (`advance_race`). In a partition without a
-- row in dibs_races no task has a number.
SELECT id, {{key}} - :position
FROM dibs_tasks INDEXED BY {{index}}
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND {{key}} IS NOT NULL
ORDER BY {{key}} LIMIT :count

-- fragment: fresh_keys
-- New numbers in the two random orders of the partition with this number of attempts left: the position plus an
-- exponential random number, whose rate in weighted order is the weight of the task; NULL if the partition does not
-- have the order. A fragment; see `pick_race`.
random_key = (SELECT position + dibs_exponential() FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'random'),
weighted_key = (SELECT position + dibs_exponential() / max(dibs_tasks.priority + 1, 1) FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'weighted')

-- name: race
-- Promise: the position of a random order in a partition, and the id up to which its tasks are numbered. Parameters:
-- the partition, kind. Rows: (position, drawn_to); none if the partition does not have this order.
SELECT position, drawn_to FROM dibs_races
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind

-- name: begin_races
-- Promise: the partition has this random order; a new one has position 0 and no numbered tasks. Parameters: the
-- partition, kind. Rows: none.
INSERT INTO dibs_races (queue, type, attempts_left, kind, position, drawn_to)
VALUES (:queue, :type, :attempts_left, :kind, 0, 0)
ON CONFLICT (queue, type, attempts_left, kind) DO NOTHING

-- name: draw
-- Promise: the next tasks of the partition that have no number get one, as if they became pending now.
-- Parameters: the partition, position, drawn_to, count. Words: key, rate. Rows: none.
-- Index: dibs_tasks_by_age, `count` entries. Safe: no other process enqueues between the read and the commit, and every
-- later enqueue finds the row of dibs_races: numbering the partition once is enough.
UPDATE dibs_tasks SET {{key}} = :position + dibs_exponential() / {{rate}}
WHERE {{key}} IS NULL AND id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND id > :drawn_to
    ORDER BY id LIMIT :count)

-- name: draw_places
-- Promise: these new tasks have their numbers in the random orders of their partitions. Parameters: first, last (ids).
-- Rows: none.
UPDATE dibs_tasks SET {{fresh_keys: dibs_tasks.max_attempts}} WHERE id BETWEEN :first AND :last

-- name: note_drawn
-- Promise: the id up to which the tasks are numbered is stored; NULL if fewer than `count` tasks followed, so that all
-- are numbered. Parameters: the partition, kind, drawn_to, last (count - 1). Rows: (drawn_to). Index:
-- dibs_tasks_by_age.
UPDATE dibs_races SET drawn_to = (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND id > :drawn_to
    ORDER BY id LIMIT 1 OFFSET :last)
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
RETURNING drawn_to

-- name: advance_race
-- Promise: the position of a random order in a partition advances by `distance`. Parameters: the partition, kind,
-- distance. Rows: none.
UPDATE dibs_races SET position = position + :distance
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
