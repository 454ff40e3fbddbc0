-- Claims: which tasks a worker gets, and the random orders.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: claim
-- Promise: the first candidates in the requested order now belong to this worker, each under its next token; never more
-- than `count`.
-- Parameters: queues, types, min_attempts_left, worker_id, incarnation, lease, ahead, request, check_overdue,
-- exact_count, now, by.
-- Words: open_queues, queue_types, candidates, single_partition (from_one_partition, or nothing), partition_condition,
-- order, candidate_limit, count, holder_columns.
-- Rows: the number of candidates, whether something is overdue, the rank, history columns, task columns; one row with
-- NULLs if no task was claimed, so that the caller can tell an empty queue from a queue whose first tasks other claims
-- are taking. Overdue tasks are looked for only if a sweep is due (`check_overdue`; then nothing is claimed if
-- something is overdue) or if there is nothing to claim.
--
-- Safe: a candidate is only a guess. The statement locks the candidate, unless another transaction holds the lock, and
-- checks under the lock that the candidate is still pending (`unindexed`). Of two claims that guess the same task, one
-- gets the task and the other takes its next candidate. The LIMITs are outside of the locking, in a materialized CTE:
-- no more rows are locked than claimed, and the UPDATE cannot run the choice a second time. The candidates leave their
-- CTE in the order in which the CTE sorted them. With a single partition nothing needs to be merged, and its tasks are
-- locked as they are read (`from_one_partition`). Counts are words, not parameters, because the planner must see how
-- few rows are wanted. The word `count` is rounded up, because each number would need its own plan; `exact_count` is
-- the number of tasks. A limit takes rows one by one, so no more rows are locked.
WITH RECURSIVE {{moment}},
{{overdue}},
{{partitions}},
{{candidates}},
picked AS MATERIALIZED (
    {{single_partition}}
    (SELECT id, rank FROM (
        SELECT locked.id, candidates.rank
        FROM candidates CROSS JOIN LATERAL (
            SELECT id FROM dibs_tasks WHERE id = candidates.id AND {{unindexed: state}} = 'pending' FOR UPDATE SKIP LOCKED
        ) AS locked
        LIMIT {{count}}
    ) AS locked
    LIMIT {{wanted}})
),
{{claimed}}
SELECT (SELECT count(*) FROM candidates),
    CASE WHEN :check_overdue OR NOT EXISTS (SELECT FROM picked) THEN (SELECT found FROM overdue) ELSE false END,
    picked.rank, changed.*
FROM (VALUES (1)) AS always LEFT JOIN (changed JOIN picked ON picked.id = changed.task_id) ON true
ORDER BY picked.rank

-- name: claim_any
-- Promise: as `claim`, but in the order of an index: for the moment when other claims are taking all candidates of
-- `claim`. Never empty while a matching task is pending and not locked.
-- Parameters and rows as in `claim`. Words: index_order, count.
-- Safe: rows are locked as they are read, partition after partition, and no more than `count` rows.
WITH RECURSIVE {{moment}},
{{partitions}},
picked AS MATERIALIZED (
    SELECT id, 0::float8 AS rank FROM (
        SELECT task.id
        FROM partitions CROSS JOIN LATERAL (
            SELECT id FROM dibs_tasks WHERE {{in_partition}} ORDER BY {{index_order}} LIMIT {{count}} FOR UPDATE SKIP LOCKED
        ) AS task
        LIMIT {{count}}
    ) AS locked
    LIMIT :exact_count
),
{{claimed}}
SELECT 0, false, picked.rank, changed.* FROM changed JOIN picked ON picked.id = changed.task_id

-- fragment: claimed
-- The picked rows become claims. A fragment of `claim` and `claim_any`. Words: holder_columns (for_one_worker or
-- for_each_worker). The rows are found again by an array of ids, not by a join: for a join with some hundred rows the
-- planner reads the whole table, up to some 100,000 rows, which was a quarter of the claim's time at 20,000 rows.
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, {{holder_columns}},
        claimed_at = moment.now, lease_until = moment.now + :lease, ahead = :ahead,
        request = :request, progress = NULL, progress_message = NULL
    FROM moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, {{task}}
),
{{noted}}

-- fragment: for_one_worker
-- All picked tasks are for one worker. A fragment of `claimed`; parameters: worker_id, incarnation.
worker_id = :worker_id, incarnation = :incarnation

-- fragment: for_each_worker
-- The first picked task is for the first worker in the list, and so on. A fragment of `claimed`; parameters: workers,
-- incarnations. Both arrays of ids come out of the same materialized CTE, in its order.
worker_id = (:workers::text[])[array_position(ARRAY(SELECT id FROM picked), task.id)],
incarnation = (:incarnations::text[])[array_position(ARRAY(SELECT id FROM picked), task.id)]

-- fragment: wanted
-- The number of tasks to claim: 0 if a sweep is due and something is overdue, because an overdue task may come before
-- all others. A fragment of `claim`; parameters: check_overdue, exact_count.
CASE WHEN :check_overdue AND (SELECT found FROM overdue) THEN 0 ELSE :exact_count END

-- fragment: from_one_partition
-- The first tasks of the only partition, locked as they are read. A fragment of `claim`, for the orders in which one
-- index alone gives the first tasks. The scan of the index skips the tasks that other transactions have locked, however
-- many there are: there is no guess that could fail, and no second look-up of each task. row_number() is outside of the
-- limits: it may read ahead, and every row that is read is locked.
(SELECT id, row_number() OVER ()::float8 AS rank FROM (
    SELECT task.id
    FROM partitions CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks WHERE {{in_partition}} ORDER BY {{order}} LIMIT {{count}} FOR UPDATE SKIP LOCKED
    ) AS task
    WHERE (SELECT count(*) FROM partitions) = 1
    LIMIT {{wanted}}
) AS alone)
UNION ALL

-- fragment: if_several_partitions
-- A condition: there are several partitions. A fragment of `candidates_ordered`.
WHERE (SELECT count(*) FROM partitions) > 1

-- name: claim_by_id
-- Promise: this task now belongs to this worker, if it was pending and its queue is not paused.
-- Parameters: id, worker_id, incarnation, lease, request, now, by. Rows: history columns, task columns; none if not
-- claimable.
-- Safe: one statement; the loser of a race waits for the winner's commit and finds the task no longer pending.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = :worker_id, incarnation = :incarnation,
        claimed_at = moment.now, lease_until = moment.now + :lease, ahead = false,
        request = :request, progress = NULL, progress_message = NULL
    FROM moment
    WHERE task.id = :id AND {{unindexed: state}} = 'pending'
      AND NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = task.queue AND paused_at IS NOT NULL)
    RETURNING task.id AS task_id, 'claimed' AS event, 'pending' AS from_state, task.state AS to_state,
        task.worker_id AS by_worker, task.token AS under_token, NULL::text AS detail, {{task}}
),
{{noted}}
SELECT * FROM changed

-- name: claims_of_request
-- Promise: the tasks that this worker claimed with this request id and still holds, in the form in which the claim
-- returned them.
-- Parameters: worker_id, incarnation, request, now. Rows: history columns, task columns. Index: dibs_tasks_requests.
-- Safe: a read before the claim. A repeated request that overtakes the first request, or arrives before the first
-- request commits, finds nothing and claims other tasks. No task is held twice by that: each claim has its own tokens,
-- and the tasks of a claim whose response was lost are recovered when their leases end. Making the repeated request
-- wait would need a lock in every claim, for the sake of a client that did not wait for its response.
WITH {{moment}}
SELECT task.id, 'claimed', 'pending', task.state, task.worker_id, task.token, NULL::text, {{task}}
FROM dibs_tasks AS task
WHERE task.state = 'claimed' AND task.worker_id = :worker_id AND task.request = :request
  AND task.incarnation IS NOT DISTINCT FROM :incarnation AND task.lease_until > (SELECT now FROM moment)
ORDER BY task.id

-- name: peek
-- Promise: the ids that a claim would take now, in order. Parameters and words as in `claim`. Rows: (id).
WITH RECURSIVE {{partitions}},
{{candidates}}
SELECT id FROM candidates ORDER BY rank LIMIT {{count}}

-- fragment: partitions
-- The partitions that pass the filters. A partition is the pending tasks of one queue and type with the same number of
-- attempts left. Every filter selects partitions, and every order has an index that begins with the columns of the
-- partition, so a claim reads only the tasks that it takes. A fragment; parameters: queues, types, min_attempts_left.
-- Words: open_queues, queue_types (each found or named).
-- The found partitions are passed on in arrays, for which the planner expects ten rows. For three nested recursions it
-- expects a million rows, and a server with JIT then compiled for a second in each claim.
{{open_queues}},
{{queue_types}},
found_partitions (queue, type, attempts_left) AS (
    SELECT queue, type, (SELECT attempts_left FROM dibs_tasks
                         WHERE state = 'pending' AND queue = queue_types.queue COLLATE "C" AND type = queue_types.type COLLATE "C"
                           AND attempts_left >= :min_attempts_left::int ORDER BY attempts_left LIMIT 1)
    FROM queue_types
    UNION ALL
    SELECT queue, type, (SELECT attempts_left FROM dibs_tasks
                         WHERE state = 'pending' AND queue = found.queue COLLATE "C" AND type = found.type COLLATE "C"
                           AND attempts_left > found.attempts_left ORDER BY attempts_left LIMIT 1)
    FROM found_partitions AS found WHERE found.attempts_left IS NOT NULL
),
partitions AS MATERIALIZED (
    SELECT found.queue COLLATE "C" AS queue, found.type COLLATE "C" AS type, found.attempts_left
    FROM (SELECT array_agg(queue) AS queues, array_agg(type) AS types, array_agg(attempts_left) AS lefts
          FROM found_partitions WHERE attempts_left IS NOT NULL) AS every,
         unnest(every.queues, every.types, every.lefts) AS found (queue, type, attempts_left)
)

-- fragment: queues_named
-- The queues that a claim names, without paused queues. A fragment of `partitions`; parameters: queues.
open_queues (queue) AS (
    SELECT wanted.queue
    FROM unnest(ARRAY(SELECT unnest(:queues::text[]))) AS wanted (queue)
    WHERE NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = wanted.queue COLLATE "C" AND paused_at IS NOT NULL)
)

-- fragment: queues_found
-- The queues that have pending tasks and are not paused, for a claim that names no queues. A fragment of `partitions`.
-- The recursion jumps from each queue to the next: one probe of an index for each queue, however many tasks there are.
found_queues (queue) AS (
    (SELECT queue FROM dibs_tasks WHERE state = 'pending' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM dibs_tasks WHERE state = 'pending' AND queue > found.queue ORDER BY queue LIMIT 1)
    FROM found_queues AS found WHERE found.queue IS NOT NULL
),
open_queues (queue) AS (
    SELECT wanted.queue
    FROM unnest(ARRAY(SELECT queue FROM found_queues WHERE queue IS NOT NULL)) AS wanted (queue)
    WHERE NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = wanted.queue AND paused_at IS NOT NULL)
)

-- fragment: types_named
-- The types that a claim names, in each open queue. A fragment of `partitions`; parameters: types.
queue_types (queue, type) AS (
    SELECT open_queues.queue, wanted.type FROM open_queues, unnest(ARRAY(SELECT unnest(:types::text[]))) AS wanted (type)
)

-- fragment: types_found
-- The types of the pending tasks in each open queue, for a claim that names no types; found as in `queues_found`. A
-- fragment of `partitions`.
found_types (queue, type) AS (
    SELECT queue, (SELECT type FROM dibs_tasks WHERE state = 'pending' AND queue = open_queues.queue COLLATE "C"
                   ORDER BY type LIMIT 1)
    FROM open_queues
    UNION ALL
    SELECT queue, (SELECT type FROM dibs_tasks
                   WHERE state = 'pending' AND queue = found.queue COLLATE "C" AND type > found.type
                   ORDER BY type LIMIT 1)
    FROM found_types AS found WHERE found.type IS NOT NULL
),
queue_types (queue, type) AS (
    SELECT found.queue, found.type
    FROM (SELECT array_agg(queue) AS queues, array_agg(type) AS types
          FROM found_types WHERE type IS NOT NULL) AS every,
         unnest(every.queues, every.types) AS found (queue, type)
)

-- fragment: in_partition
-- The condition that a task belongs to a partition.
state = 'pending' AND queue = partitions.queue AND type = partitions.type AND attempts_left = partitions.attempts_left

-- fragment: candidates_ordered
-- The first tasks of several partitions in the requested order. With a single partition, `from_one_partition` needs no
-- candidates. Words: partition_condition (if_several_partitions, or nothing), order, candidate_limit. Index: that of
-- the order, `candidate_limit` entries of each partition; only these entries are sorted.
candidates AS MATERIALIZED (
    SELECT task.id, row_number() OVER (ORDER BY {{order}})::float8 AS rank
    FROM partitions CROSS JOIN LATERAL (
        SELECT id, priority FROM dibs_tasks WHERE {{in_partition}} ORDER BY {{order}} LIMIT {{candidate_limit}}
    ) AS task
    {{partition_condition}}
    ORDER BY rank LIMIT {{candidate_limit}}
)

-- fragment: candidates_levels
-- The first tasks in an order by priority, where the order within a priority is not that of the index.
-- Words: order, candidate_limit; beyond and levels (how to step from one priority to the next), within (the order
-- within a priority). Index: dibs_tasks_by_priority. The recursion jumps from each priority of a partition to the next.
-- Of each priority, `candidate_limit` entries are read in either direction, until there are `candidate_limit` tasks of
-- the partition: so these orders need no index of their own.
candidates AS MATERIALIZED (
    SELECT task.id, row_number() OVER (ORDER BY {{order}})::float8 AS rank
    FROM partitions CROSS JOIN LATERAL (
        WITH RECURSIVE level (priority) AS (
            (SELECT priority FROM dibs_tasks WHERE {{in_partition}} ORDER BY {{levels}} LIMIT 1)
            UNION ALL
            SELECT (SELECT priority FROM dibs_tasks WHERE {{in_partition}} AND priority {{beyond}} level.priority
                    ORDER BY {{levels}} LIMIT 1)
            FROM level WHERE level.priority IS NOT NULL
        )
        SELECT found.id, found.priority
        FROM level CROSS JOIN LATERAL (
            SELECT id, priority FROM dibs_tasks WHERE {{in_partition}} AND priority = level.priority
            ORDER BY {{within}} LIMIT {{candidate_limit}}
        ) AS found
        LIMIT {{candidate_limit}}
    ) AS task
    ORDER BY rank LIMIT {{candidate_limit}}
)

-- fragment: candidates_random
-- The first tasks in random or weighted order. Parameters: kind, include_unnumbered. Words: order (the column of the
-- random-order number), candidate_limit. Index: that of the column, `candidate_limit` entries of each partition.
--
-- A row of dibs_races is the state of one random order (`kind`) in one partition. When a task becomes pending, the task
-- gets a random-order number: the position of the partition plus an exponential random number, whose rate is 1 in
-- random order and the weight of the task in weighted order. The task with the smallest number is claimed first; the
-- probability of that is proportional to its rate. The exponential distribution has no memory, so the same holds for
-- the next claim, if the position advances to the number of the claimed task (`advance_race`). In a partition without a
-- row in dibs_races no task has a number: then there are no candidates, unless `include_unnumbered`, and the claim
-- numbers the tasks first.
{{unnumbered}},
candidates AS MATERIALIZED (
    SELECT task.id, task.distance AS rank
    FROM partitions
    JOIN dibs_races AS race ON race.queue = partitions.queue AND race.type = partitions.type
        AND race.attempts_left = partitions.attempts_left AND race.kind = :kind
    CROSS JOIN LATERAL (
        SELECT id, {{order}} - race.position AS distance FROM dibs_tasks
        WHERE {{in_partition}} AND {{order}} IS NOT NULL ORDER BY {{order}} LIMIT {{candidate_limit}}
    ) AS task
    WHERE :include_unnumbered OR NOT EXISTS (SELECT FROM unnumbered)
    ORDER BY rank LIMIT {{candidate_limit}}
)

-- fragment: overdue
-- Whether a sweep would find tasks to promote or to recover. A fragment; evaluated only if the result matters.
-- Indexes: dibs_tasks_due and dibs_tasks_leases, the first entry of each (after steps that end with their lease).
overdue AS MATERIALIZED (
    SELECT coalesce((SELECT run_at FROM dibs_tasks WHERE state = 'scheduled' ORDER BY run_at LIMIT 1) <= moment.now, false)
        OR (SELECT lease_until FROM dibs_tasks WHERE state = 'claimed' AND lease_until <= moment.now {{except_ending_steps}}
            ORDER BY lease_until LIMIT 1) IS NOT NULL AS found
    FROM moment
)

-- fragment: random_place
-- A new number in random order, in the partition with this number of attempts left: the position plus an exponential
-- random number; NULL if the partition has no random order. A fragment; see `candidates_random`.
(SELECT race.position - ln(1 - random()) FROM dibs_races AS race
 WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}
   AND race.kind = 'random')

-- fragment: weighted_place
-- A new number in weighted order; the rate is the weight of the task. A fragment; see `random_place`.
(SELECT race.position - ln(1 - random()) / greatest(task.priority::bigint + 1, 1) FROM dibs_races AS race
 WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}
   AND race.kind = 'weighted')

-- name: begin_races
-- Promise: the partitions have this random order. A new one has position 0 and no numbered tasks. If a finished one may
-- have tasks without a number, its tasks are to be numbered again. Rows: none.
-- Parameters: items (a JSON array of partitions with kind). Safe: rows are written in one order, so two of these
-- statements cannot deadlock. A transaction that enqueues without having seen the new row began before this statement's
-- transaction ended: see `draw`.
INSERT INTO dibs_races AS race (queue, type, attempts_left, kind, position, drawn_to, settles_after)
SELECT item.queue, item.type, item.attempts_left, item.kind, 0, 0, pg_current_xact_id()
FROM json_to_recordset(:items::json) AS item (queue text, type text, attempts_left int, kind text)
ORDER BY item.queue COLLATE "C", item.type COLLATE "C", item.attempts_left
ON CONFLICT (queue, type, attempts_left, kind) DO UPDATE SET drawn_to = 0, settles_after = NULL
WHERE race.drawn_to IS NULL AND race.settles_after < pg_snapshot_xmin(pg_current_snapshot())

-- fragment: unnumbered
-- The partitions that may have tasks without a number: partitions without this random order, partitions whose tasks are
-- being numbered, and partitions that must be numbered once more (see `draw`). Parameters: kind.
unnumbered AS MATERIALIZED (
    SELECT partitions.queue, partitions.type, partitions.attempts_left
    FROM partitions
    LEFT JOIN dibs_races AS race ON race.queue = partitions.queue AND race.type = partitions.type
        AND race.attempts_left = partitions.attempts_left AND race.kind = :kind
    WHERE race.kind IS NULL OR race.drawn_to IS NOT NULL
       OR race.settles_after < pg_snapshot_xmin(pg_current_snapshot())
)

-- name: unnumbered_partitions
-- Promise: the partitions whose tasks must be numbered before a claim in random order can claim.
-- Parameters: queues, types, min_attempts_left, kind. Rows: (queue, type, attempts_left).
WITH RECURSIVE {{partitions}},
{{unnumbered}}
SELECT * FROM unnumbered

-- name: draw
-- Promise: the next tasks of the partition that have no number get one, as if they became pending now.
-- Parameters: the partition, kind. Words: key, rate, limit. Rows: (drawn_to); none if another transaction has finished
-- the numbering. Index: dibs_tasks_by_age, `limit` entries.
--
-- Numbering the partition once is not enough: a transaction that had not seen the row of dibs_races when it enqueued
-- may commit after this statement has read the partition. When all transactions have ended that were running at the end
-- of the first numbering (settles_after), the partition is numbered once more, and is then complete. A task that is
-- missed even so (of a transaction that reads an old snapshot) gets its number when it is the oldest of its partition
-- (`advance_race`), or is claimed without a number when no other task is left.
--
-- Safe: the statement holds the lock of the row of dibs_races, and waits for no other lock meanwhile: it skips tasks
-- that other transactions have locked, most likely because they are being claimed.
WITH race AS MATERIALIZED (
    SELECT * FROM dibs_races
    WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
      AND drawn_to IS NOT NULL
    FOR UPDATE
),
chunk AS MATERIALIZED (
    SELECT task.id FROM race AS partitions CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks WHERE {{in_partition}} AND id > partitions.drawn_to ORDER BY id LIMIT {{limit}}
    ) AS task
),
free AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE id = ANY (ARRAY(SELECT id FROM chunk)) AND {{unindexed: state}} = 'pending' AND {{key}} IS NULL
    FOR UPDATE SKIP LOCKED
),
drawn AS (
    UPDATE dibs_tasks AS task SET {{key}} = race.position - ln(1 - random()) / {{rate}}
    FROM race WHERE task.id = ANY (ARRAY(SELECT id FROM free))
),
reached AS MATERIALIZED (
    SELECT CASE WHEN count(*) = {{limit}} THEN max(id) END AS id FROM chunk
)
UPDATE dibs_races AS noted
SET drawn_to = reached.id,
    settles_after = CASE WHEN reached.id IS NOT NULL THEN noted.settles_after
                         WHEN noted.settles_after IS NOT NULL THEN pg_current_xact_id() END
FROM race, reached
WHERE noted.queue = race.queue AND noted.type = race.type AND noted.attempts_left = race.attempts_left
  AND noted.kind = race.kind
RETURNING noted.drawn_to

-- name: advance_race
-- Promise: the positions of the partitions that passed the filters advance by `distance`; and the oldest task of each
-- partition has a number, if it had none and no transaction has locked it: so no task is passed over for ever. Rows:
-- none.
-- Parameters: queues, types, min_attempts_left, kind, distance. Words: key, rate. Safe: the rows of dibs_races are
-- locked in one order, so two of these statements cannot deadlock. Concurrent claims may both advance a position, which
-- shifts the odds between them a little.
WITH RECURSIVE {{partitions}},
held AS MATERIALIZED (
    SELECT race.* FROM partitions
    JOIN dibs_races AS race ON race.queue = partitions.queue AND race.type = partitions.type
        AND race.attempts_left = partitions.attempts_left AND race.kind = :kind
    ORDER BY race.queue, race.type, race.attempts_left
    FOR UPDATE OF race
),
passed_over AS MATERIALIZED (
    SELECT locked.id, partitions.position
    FROM held AS partitions
    CROSS JOIN LATERAL (SELECT id, {{key}} AS key FROM dibs_tasks WHERE {{in_partition}} ORDER BY id LIMIT 1) AS oldest
    CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks
        WHERE id = oldest.id AND oldest.key IS NULL AND {{unindexed: state}} = 'pending' AND {{key}} IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS locked
),
drawn AS (
    UPDATE dibs_tasks AS task SET {{key}} = passed_over.position + :distance::float8 - ln(1 - random()) / {{rate}}
    FROM passed_over WHERE task.id = passed_over.id
)
UPDATE dibs_races AS race SET position = race.position + :distance::float8
FROM held
WHERE race.queue = held.queue AND race.type = held.type AND race.attempts_left = held.attempts_left
  AND race.kind = held.kind
