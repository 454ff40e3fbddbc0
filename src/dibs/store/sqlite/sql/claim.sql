-- Claims: which tasks a worker gets, and the random orders.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: claim
-- Promise: the picked tasks now belong to this worker, each under its next token.
-- Parameters: ids, worker_id, incarnation, lease, ahead, request, now. Rows: history columns, task columns.
-- Safe: the write lock is held since before the tasks were picked; the condition checks the state once more.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = :worker_id, incarnation = :incarnation, claimed_at = :now,
    lease_until = :now + :lease, ahead = :ahead, request = :request, progress = NULL, progress_message = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'pending' AND NOT parked AND backlog IS NULL
RETURNING id, 'claimed', 'pending', state, worker_id, token, NULL, {{task}}

-- name: claim_by_id
-- Promise: this task now belongs to this worker, if it was pending and not expired, and neither its queue nor its type
-- is paused.
-- Parameters: id, worker_id, incarnation, lease, request, now. Rows: history columns, task columns; none if not
-- claimable.
-- Safe: one statement under the write lock; the loser of a race finds the task no longer pending.
UPDATE dibs_tasks
SET state = 'claimed', token = token + 1, worker_id = :worker_id, incarnation = :incarnation, claimed_at = :now,
    lease_until = :now + :lease, ahead = 0, request = :request, progress = NULL, progress_message = NULL, parked = 0
WHERE id = :id AND state = 'pending' AND backlog IS NULL
  AND (expires_at IS NULL OR expires_at > :now)
  AND NOT EXISTS (SELECT 1 FROM dibs_pauses WHERE paused_at IS NOT NULL
                  AND ((scope = 'queue' AND name = dibs_tasks.queue) OR (scope = 'type' AND name = dibs_tasks.type)))
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

-- name: scan
-- Promise: the first claimable tasks that pass the filters, among the first `bound` of an index.
-- Parameters: bound, count, min_attempts_left, queues and types where they are filters; first, second and level of a
-- stream. Words: index, where (the tasks of a stream, or nothing), order, passes. Rows: (id, priority).
-- Index: the given one, at most `bound` entries, and no more than it takes to find `count` tasks: SQLite runs the inner
-- query as a coroutine, because its limit keeps it from being merged with the outer one.
SELECT id, priority FROM (
    SELECT id, priority, queue, type, attempts_left, expires_at FROM dibs_tasks INDEXED BY {{index}}
    WHERE {{claimable}} {{where}} ORDER BY {{order}} LIMIT :bound)
WHERE true {{passes}} LIMIT :count

-- name: read_streams
-- Promise: the first claimable tasks of each stream that pass the filters, among the first `bound` of the stream.
-- Parameters: streams (a JSON array with the values of each), bound, count, min_attempts_left, queues, types. Words:
-- part (part_of_stream, or filtered_part_of_stream), index, where, order, passes. Rows: the tasks of a stream, as a JSON
-- array of [id, priority], one row for each stream, in order.
-- Index: the given one, once for each stream. One statement for all streams, because a statement for each takes 10 µs,
-- and a probe 2 µs. As JSON, because a join with the tasks would look each of them up once more.
SELECT (SELECT json_group_array(json_array(id, priority)) FROM ({{part}})) FROM json_each(:streams) AS stream

-- fragment: part_of_stream
-- The first tasks of a stream whose tasks all pass, unless they have expired: read in the index alone.
SELECT id, priority FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} {{where}} {{passes}}
ORDER BY {{order}} LIMIT :count

-- fragment: filtered_part_of_stream
-- The first tasks of a stream that pass the filters.
SELECT id, priority FROM (
    SELECT id, priority, queue, type, attempts_left, expires_at FROM dibs_tasks INDEXED BY {{index}}
    WHERE {{claimable}} {{where}} ORDER BY {{order}} LIMIT :bound)
WHERE true {{passes}} LIMIT :count

-- name: cut_streams
-- Promise: whether one of the streams has more tasks than `read_streams` read. Parameters: streams, bound. Words: index,
-- where, order. Rows: (1), or none.
SELECT 1 FROM json_each(:streams) AS stream
WHERE EXISTS (SELECT 1 FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} {{where}}
              ORDER BY {{order}} LIMIT 1 OFFSET :bound)
LIMIT 1

-- name: read_levels
-- Promise: as `read_streams`, for an order by priorities (levels) that the index has in the other direction: the first
-- tasks of each of the first `levels` priorities of each stream.
-- Parameters: as in `read_streams`, and levels. Words: as in `read_streams`; in_stream, beyond and levels (upwards or
-- downwards), cut (level_is_cut, or 0). Rows: the levels of a stream, as a JSON array of [tasks, cut], one row for each
-- stream. cut: the level has more tasks than the bound.
-- Index: the given one, two probes for each level. One statement for all, for the reasons given in `read_streams`.
SELECT (
    WITH RECURSIVE level(priority) AS (
        SELECT (SELECT priority FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} {{in_stream}}
                ORDER BY {{levels}} LIMIT 1)
        UNION ALL
        SELECT (SELECT priority FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} {{in_stream}}
                AND priority {{beyond}} level.priority ORDER BY {{levels}} LIMIT 1)
        FROM level WHERE level.priority IS NOT NULL LIMIT :levels)
    SELECT json_group_array(json_array(
        json((SELECT json_group_array(json_array(id, priority)) FROM ({{part}}))), {{cut}}))
    FROM level WHERE level.priority IS NOT NULL)
FROM json_each(:streams) AS stream

-- fragment: level_is_cut
-- Whether the level has more tasks than the bound.
EXISTS (SELECT 1 FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} {{where}} ORDER BY {{order}}
        LIMIT 1 OFFSET :bound)

-- name: beyond_bound
-- Promise: whether the index has more tasks than `scan` read. Parameters and words as in `scan`. Rows: (1), or none.
SELECT 1 FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} {{where}} ORDER BY {{order}} LIMIT 1 OFFSET :bound

-- fragment: in_named_queues
-- A condition: the task is in one of the queues that the claim names. Parameters: queues.
AND queue IN (SELECT value FROM json_each(:queues))

-- fragment: of_named_types
-- A condition: the type of the task is one of those that the claim names. Parameters: types.
AND type IN (SELECT value FROM json_each(:types))

-- fragment: with_attempts_left
-- A condition: the task has enough attempts left. Parameters: min_attempts_left.
AND attempts_left >= :min_attempts_left

-- fragment: not_expired
-- A condition: the expiry of the task has not passed. Upkeep cancels expired tasks, but not at once.
AND (expires_at IS NULL OR expires_at > :now)

-- fragment: queue_is_open
-- A condition: the queue of the task is not paused. The first look finds out once whether any queue is paused.
AND (NOT EXISTS (SELECT 1 FROM dibs_pauses INDEXED BY dibs_pauses_paused WHERE scope = 'queue' AND paused_at IS NOT NULL)
     OR NOT EXISTS (SELECT 1 FROM dibs_pauses AS paused
                    WHERE paused.scope = 'queue' AND paused.name = queue AND paused.paused_at IS NOT NULL))

-- fragment: type_is_open
-- A condition: the type of the task is not paused; as `queue_is_open`.
AND (NOT EXISTS (SELECT 1 FROM dibs_pauses INDEXED BY dibs_pauses_paused WHERE scope = 'type' AND paused_at IS NOT NULL)
     OR NOT EXISTS (SELECT 1 FROM dibs_pauses AS paused
                    WHERE paused.scope = 'type' AND paused.name = type AND paused.paused_at IS NOT NULL))

-- name: paused_of
-- Promise: the paused queues, or types, among these. Parameters: scope, names. Rows: (name).
SELECT name FROM dibs_pauses
WHERE scope = :scope AND paused_at IS NOT NULL AND name IN (SELECT value FROM json_each(:names))

-- name: next_queue
-- Promise: the first queue after this one that has a claimable task. Parameters: after. Rows: (queue or NULL).
-- Index: one probe of dibs_tasks_by_queue, or of the same by age, however many tasks a queue holds. Words: index.
SELECT min(queue) FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} AND queue > :after

-- name: next_attempts
-- Promise: the next higher number of attempts left that a claimable task has. Parameters: after. Words: index. Rows:
-- (number or NULL). Index: one probe of the given one.
SELECT min(attempts_left) FROM dibs_tasks INDEXED BY {{index}} WHERE {{claimable}} AND attempts_left > :after

-- name: next_level
-- Promise: the next priority after `after` that a claimable task has; of a stream, if `where` names one.
-- Parameters: after, first, second. Words: index, where, beyond and order (upwards or downwards). Rows: (priority), or
-- none.
-- Index: one probe of the given one.
SELECT priority FROM dibs_tasks INDEXED BY {{index}}
WHERE {{claimable}} {{where}} AND priority {{beyond}} :after ORDER BY {{order}} LIMIT 1

-- name: scan_random
-- Promise: the first tasks in random or weighted order from the position on that pass the filters, among the first
-- `bound` of an index.
-- Parameters: position, bound, count, min_attempts_left, queues, types, name. Words: index, key, where, passes.
-- Rows: (id, number). Index: the given one, as in `scan`.
--
-- A row of dibs_random_orders is the state of one random order (`kind`). A task that becomes pending gets a random-order
-- number: the position of the order plus an exponential random number, whose rate is 1 in random order and the weight of
-- the task in weighted order. The task with the smallest number is claimed first; the probability of that is
-- proportional to its rate. The exponential distribution has no memory, so the same holds for the next claim, if the
-- position advances to the number of the claimed task (`advance_random_order`). A claim with filters passes over tasks
-- of others with smaller numbers. Such a task must not have an advantage later: a claim whose filters it passes gives
-- it a new number, as if it became pending now (`redraw`).
SELECT id, number FROM (
    SELECT id, {{key}} AS number, queue, type, attempts_left, expires_at FROM dibs_tasks INDEXED BY {{index}}
    WHERE {{claimable}} AND {{key}} IS NOT NULL AND {{key}} >= :position {{where}} ORDER BY {{key}} LIMIT :bound)
WHERE true {{passes}} LIMIT :count

-- name: read_numbers
-- Promise: the first tasks of each stream in random or weighted order from the position on that pass the filters.
-- Parameters: names (a JSON array), position, count, min_attempts_left, queues, types. Words: as in `scan_random`; column.
-- Rows: (id, number, number of the stream). Index: the given one, once for each stream; then the primary key.
SELECT task.id, task.{{key}}, stream.key
FROM json_each(:names) AS stream CROSS JOIN dibs_tasks AS task
WHERE task.id IN (
    SELECT id FROM dibs_tasks INDEXED BY {{index}}
    WHERE {{claimable}} AND {{key}} IS NOT NULL AND {{key}} >= :position AND {{column}} = stream.value
      {{passes}}
    ORDER BY {{key}} LIMIT :count)

-- name: beyond_numbers
-- Promise: whether the index has more tasks than `scan_random` read. Parameters and words as there. Rows: (1), or none.
SELECT 1 FROM dibs_tasks INDEXED BY {{index}}
WHERE {{claimable}} AND {{key}} IS NOT NULL AND {{key}} >= :position {{where}} ORDER BY {{key}} LIMIT 1 OFFSET :bound

-- name: redraw
-- Promise: up to `count` tasks with numbers below the position that pass the filters have new numbers.
-- Parameters and words as in `scan_random`; rate. Rows: none.
UPDATE dibs_tasks SET {{key}} = :position + dibs_exponential() / {{rate}} WHERE id IN (
    SELECT id FROM (
        SELECT id, queue, type, attempts_left, expires_at FROM dibs_tasks INDEXED BY {{index}}
        WHERE {{claimable}} AND {{key}} IS NOT NULL AND {{key}} < :position {{where}} ORDER BY {{key}} LIMIT :bound)
    WHERE true {{passes}} LIMIT :count)

-- fragment: fresh_keys
-- New numbers in the two random orders; NULL where the order is not in use. The position is read once for a statement,
-- the random number is drawn for each task.
random_key = CASE WHEN {{order_in_use: 'random'}} THEN {{position_of: 'random'}} + dibs_exponential() END,
weighted_key = CASE WHEN {{order_in_use: 'weighted'}}
    THEN {{position_of: 'weighted'}} + dibs_exponential() / max(dibs_tasks.priority + 1, 1) END

-- fragment: order_in_use
-- A condition: claims use this random order.
EXISTS (SELECT 1 FROM dibs_random_orders WHERE kind = {{argument}} AND NOT ended)

-- fragment: position_of
-- The position of this random order.
(SELECT position FROM dibs_random_orders WHERE kind = {{argument}})

-- name: random_order
-- Promise: the state of a random order. Parameters: kind. Rows: (position, numbered_to, ended); none if no claim has
-- ever used it.
SELECT position, numbered_to, ended FROM dibs_random_orders WHERE kind = :kind

-- name: create_random_index
-- Promise: the index of the whole store in the random order exists. Words: index, key. Rows: none.
-- Safe: a part of the transaction that begins the order, so an order that has begun has its index.
CREATE INDEX IF NOT EXISTS {{schema}}.{{index}} ON dibs_tasks ({{key}}) WHERE {{claimable}} AND {{key}} IS NOT NULL

-- name: create_stream_index
-- Promise: this index of streams exists. Words: index, columns, condition. Rows: none.
-- Safe: a transaction of its own under the write lock, which other writers wait for. A process that is killed meanwhile
-- leaves no part of the index.
CREATE INDEX IF NOT EXISTS {{schema}}.{{index}} ON dibs_tasks ({{columns}}) WHERE {{condition}}

-- name: claim_indexes
-- Promise: the indexes of the tasks. Rows: (name).
SELECT name FROM pragma_index_list('dibs_tasks')

-- name: begin_random_order
-- Promise: the random order is in use. A new one has position 0; an ended one keeps its position, and the tasks that
-- came since then are to be numbered. Parameters: kind, now. Rows: none.
INSERT INTO dibs_random_orders (kind, position, numbered_to, used_at) VALUES (:kind, 0, 0, :now)
ON CONFLICT (kind) DO UPDATE SET numbered_to = 0, used_at = :now, ended = 0 WHERE ended

-- name: number_tasks
-- Promise: the next claimable tasks that have no number get one, as if they became pending now.
-- Parameters: position, numbered_to, count. Words: key, rate. Rows: none.
-- Index: dibs_tasks_by_age, `count` entries. Safe: no other process enqueues between the read and the commit, and every
-- later enqueue finds the row of dibs_random_orders: numbering the tasks once is enough.
UPDATE dibs_tasks SET {{key}} = :position + dibs_exponential() / {{rate}}
WHERE {{key}} IS NULL AND id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE {{claimable}} AND id > :numbered_to ORDER BY id LIMIT :count)

-- name: number_new
-- Promise: these new tasks have their numbers in the random orders. Parameters: first, last (ids). Rows: none.
UPDATE dibs_tasks SET {{fresh_keys}} WHERE id BETWEEN :first AND :last

-- name: note_numbered
-- Promise: the id up to which the tasks are numbered is stored; NULL if fewer than `count` tasks followed, so that all
-- are numbered. Parameters: kind, numbered_to, last (count - 1). Rows: (numbered_to). Index: dibs_tasks_by_age.
UPDATE dibs_random_orders SET numbered_to = (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE {{claimable}} AND id > :numbered_to ORDER BY id LIMIT 1 OFFSET :last)
WHERE kind = :kind
RETURNING numbered_to

-- name: advance_random_order
-- Promise: the position of the random order is this number, if it was lower. Parameters: kind, position, now. Rows:
-- none.
UPDATE dibs_random_orders SET position = max(position, :position), used_at = :now WHERE kind = :kind

-- name: park
-- Promise: the first claimable tasks of the queue or type are parked, if it is paused. Parameters: scope, name. Words:
-- tasks_to_park, column (queue or type), limit, reach. Rows: (id).
-- Index: dibs_tasks_by_queue or dibs_tasks_by_type, or dibs_tasks_by_priority with `reach` entries.
-- Safe: the pause is read under the write lock.
UPDATE dibs_tasks SET parked = 1, type_parked = :scope = 'type'
WHERE id IN ({{tasks_to_park}} LIMIT {{limit}})
  AND EXISTS (SELECT 1 FROM dibs_pauses WHERE scope = :scope AND name = :name AND paused_at IS NOT NULL)
RETURNING id

-- fragment: first_in_stream
-- The first claimable tasks of the queue or type.
SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_{{column}} WHERE {{claimable}} AND {{column}} = :name ORDER BY priority DESC, id

-- fragment: first_within_reach
-- The claimable tasks of the queue or type among the first `reach` of the store, for a store without the index of streams.
SELECT id FROM (SELECT id, queue, type FROM dibs_tasks INDEXED BY dibs_tasks_by_priority
                WHERE {{claimable}} ORDER BY priority DESC, id LIMIT {{reach}})
WHERE {{column}} = :name

-- name: unpark
-- Promise: of the tasks that are parked for this pause, the first ones are claimable, unless the pause holds. Those whose
-- type, or queue, is paused as well stay parked for that other pause. A task without a number in a random order that is in
-- use gets one. Parameters: scope, name, by_type, other (the other scope). Words: other_column (type or queue), limit.
-- Rows: (id). Index: dibs_tasks_parked.
-- Safe: as `park`. Tasks are unparked in the order of claims by priority.
UPDATE dibs_tasks
SET parked = {{also_paused}}, type_parked = CASE WHEN {{also_paused}} THEN NOT type_parked ELSE type_parked END,
    {{fresh_keys}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_parked
             WHERE {{is_parked}} AND type_parked = :by_type AND {{pause_name}} = :name
             ORDER BY priority DESC, id LIMIT {{limit}})
  AND NOT EXISTS (SELECT 1 FROM dibs_pauses WHERE scope = :scope AND name = :name AND paused_at IS NOT NULL)
RETURNING id

-- fragment: also_paused
-- Whether the task has another pause beside that which has ended. A fragment of `unpark`.
EXISTS (SELECT 1 FROM dibs_pauses AS other WHERE other.scope = :other AND other.name = dibs_tasks.{{other_column}}
        AND other.paused_at IS NOT NULL)
