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
-- Promise: the first tasks of one line (queue, type, attempts left) in the order asked for.
-- Parameters: the line, count. Words: index and order, from a fixed table. Rows: (id, priority).
-- Index: the order's own; it is read from its end, `count` entries, nothing is sorted.
SELECT id, priority FROM dibs_tasks INDEXED BY {{index}}
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
ORDER BY {{order}} LIMIT :count

-- name: pick_level
-- Promise: the tasks of one line with the next priority after `after`, downwards or upwards, newest or oldest first.
-- Parameters: the line, after, count. Words: beyond and levels (the way through the priorities), within (the order in
-- each), from a fixed table. Rows: (id, priority).
-- Index: dibs_tasks_by_priority, one probe for the next priority and `count` entries. Within a priority it is read
-- either way, so that orders by priority need no index of their own.
SELECT id, priority FROM dibs_tasks INDEXED BY dibs_tasks_by_priority
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND priority = (
    SELECT priority FROM dibs_tasks INDEXED BY dibs_tasks_by_priority
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left
      AND priority {{beyond}} :after
    ORDER BY {{levels}} LIMIT 1)
ORDER BY {{within}} LIMIT :count

-- name: pick_race
-- Promise: the tasks of one line that come first in its race. Words: index, key. Parameters: the line, position of the
-- race, count. Rows: (id, how far it is from winning). Index: the race's own, `count` entries.
--
-- Every pending task of a line that races drew an exponential number on top of where the race stood when it became
-- pending; its rate is 1 in the random race and the task's weight in the weighted one. The smallest number wins, with a
-- probability proportional to its rate; by the lack of memory of that distribution the same holds for the next winner,
-- if the race moves on to where the last one won (`advance_race`). In a line that does not race nobody has a number.
SELECT id, {{key}} - :position
FROM dibs_tasks INDEXED BY {{index}}
WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND {{key}} IS NOT NULL
ORDER BY {{key}} LIMIT :count

-- fragment: fresh_keys
-- A fresh place in the two races of the line that has this many attempts left: where the race stands now, plus an
-- exponential draw, with the task's weight as its rate in the weighted race; none where the line does not race. A
-- fragment; see `pick_race`.
random_key = (SELECT position + dibs_exponential() FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'random'),
weighted_key = (SELECT position + dibs_exponential() / max(dibs_tasks.priority + 1, 1) FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'weighted')

-- name: race
-- Promise: where the race of a line stands, and how far its numbers are drawn. Parameters: the line, kind.
-- Rows: (position, drawn_to); none if the line does not race.
SELECT position, drawn_to FROM dibs_races
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind

-- name: begin_races
-- Promise: the line has a race of this kind; a new one stands at 0, and no task has drawn a number.
-- Parameters: the line, kind. Rows: none.
INSERT INTO dibs_races (queue, type, attempts_left, kind, position, drawn_to)
VALUES (:queue, :type, :attempts_left, :kind, 0, 0)
ON CONFLICT (queue, type, attempts_left, kind) DO NOTHING

-- name: draw
-- Promise: the next tasks of the line that have no number in its race draw one, as they would if they came now.
-- Parameters: the line, position, drawn_to, count. Words: key, rate. Rows: none.
-- Index: dibs_tasks_by_age, `count` entries. Safe: nobody enqueues between the look and the commit, and who comes
-- later finds the race: once through the line is enough.
UPDATE dibs_tasks SET {{key}} = :position + dibs_exponential() / {{rate}}
WHERE {{key}} IS NULL AND id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND id > :drawn_to
    ORDER BY id LIMIT :count)

-- name: draw_places
-- Promise: these new tasks have their places in the races of their lines. Parameters: first and last id. Rows: none.
UPDATE dibs_tasks SET {{fresh_keys: dibs_tasks.max_attempts}} WHERE id BETWEEN :first AND :last

-- name: note_drawn
-- Promise: the race knows how far its numbers are drawn; to the end, where fewer than `count` tasks came after.
-- Parameters: the line, kind, drawn_to, last (count - 1). Rows: (drawn_to). Index: dibs_tasks_by_age.
UPDATE dibs_races SET drawn_to = (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND id > :drawn_to
    ORDER BY id LIMIT 1 OFFSET :last)
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
RETURNING drawn_to

-- name: advance_race
-- Promise: a race of a line moves on by `distance`. Parameters: the line, kind, distance. Rows: none.
UPDATE dibs_races SET position = position + :distance
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
