-- Claims: which tasks a worker gets, and the random orders.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: claim
-- Promise: the best candidates now belong to this worker, each under its next token; never more than `count`.
-- Parameters: queues, types, least, worker_id, incarnation, lease, ahead, request, look, exactly, now, by.
-- Words: open_queues, kinds, candidates, alone (from_one_line, or nothing), order, reach, count.
-- Rows: how many candidates there were, whether something is overdue, the rank, history columns, task columns; one row
-- of NULLs where none was claimed, so that the caller can tell an empty queue from one whose first tasks are being
-- claimed by others. Whether something is overdue is only asked where it is time to sweep (`look`; then nothing is
-- claimed) or where there is nothing to claim.
--
-- Safe: a candidate is only a guess. It is locked, if nobody else holds its lock, and looked at again under the lock
-- (`unindexed` pending), so of two claims that guess the same task one gets it and the other takes its next guess. The
-- LIMITs stand over the locking, in a materialized CTE: no more rows are locked than claimed, and the UPDATE cannot run
-- the choice a second time. Candidates come out of their CTE in the order in which it sorted them. Where there is a
-- single line nothing needs to be merged, and its tasks are locked as they are read (`from_one_line`). Counts are
-- words, not parameters: the planner must see how few rows are wanted. The word is rounded up, since each number would
-- be planned anew, and `exactly` says how many. A limit takes rows one by one, so no more are locked.
WITH RECURSIVE {{moment}},
{{overdue}},
{{lines}},
{{candidates}},
picked AS MATERIALIZED (
    {{alone}}
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
    CASE WHEN :look OR NOT EXISTS (SELECT FROM picked) THEN (SELECT found FROM overdue) ELSE false END,
    picked.rank, changed.*
FROM (VALUES (1)) AS always LEFT JOIN (changed JOIN picked ON picked.id = changed.task_id) ON true
ORDER BY picked.rank

-- name: claim_any
-- Promise: as `claim`, in whatever order is at hand: for the moment when all candidates of `claim` are being
-- claimed by others. Never empty while a matching task is pending and not locked.
-- Parameters and rows as in `claim`. Words: at_hand, count.
-- Safe: rows are locked as they are read, line after line, and no more than `count` of them.
WITH RECURSIVE {{moment}},
{{lines}},
picked AS MATERIALIZED (
    SELECT id, 0::float8 AS rank FROM (
        SELECT task.id
        FROM lines CROSS JOIN LATERAL (
            SELECT id FROM dibs_tasks WHERE {{in_line}} ORDER BY {{at_hand}} LIMIT {{count}} FOR UPDATE SKIP LOCKED
        ) AS task
        LIMIT {{count}}
    ) AS locked
    LIMIT :exactly
),
{{claimed}}
SELECT 0, false, picked.rank, changed.* FROM changed JOIN picked ON picked.id = changed.task_id

-- fragment: claimed
-- The picked rows become claims. A fragment of `claim` and `claim_any`. Words: hands (for_one_worker or
-- for_each_worker). They are found again by an array of ids, not by a join: for a join with some hundred rows the
-- planner reads the whole table, up to some 100,000 rows, which was a quarter of the claim's time at 20,000.
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, {{hands}},
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
-- How many tasks to claim: none where it is time to sweep and something is overdue, which may come before all others.
-- A fragment of `claim`; parameters: look, exactly.
CASE WHEN :look AND (SELECT found FROM overdue) THEN 0 ELSE :exactly END

-- fragment: from_one_line
-- The first tasks of the only line that there is, locked as they are read. A fragment of `claim`, for the orders whose
-- index alone says what comes first. Others' locks are passed over in the index, however many they are: so there is no
-- guess that could fail, and no second look-up of each task. The numbering stands above the limits: it may read ahead,
-- and what is read is locked.
(SELECT id, row_number() OVER ()::float8 AS rank FROM (
    SELECT task.id
    FROM lines CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks WHERE {{in_line}} ORDER BY {{order}} LIMIT {{count}} FOR UPDATE SKIP LOCKED
    ) AS task
    WHERE (SELECT count(*) FROM lines) = 1
    LIMIT {{wanted}}
) AS alone)
UNION ALL

-- fragment: if_several
-- Only where there are several lines. A fragment of `candidates_ordered`.
WHERE (SELECT count(*) FROM lines) > 1

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
-- Promise: what this worker claimed under this name and still holds, as the claim itself answered.
-- Parameters: worker_id, incarnation, request, now. Rows: history columns, task columns. Index: dibs_tasks_requests.
-- Safe: only a look, before the claim. A repeat that overtakes its original, or comes before the original's commit,
-- finds nothing and claims other tasks. Nobody holds a task twice by that: each claim has tokens of its own, and those
-- whose answer nobody received come back when their lease ends. To make the repeat wait would need a lock for every
-- claim, for the sake of a sender that did not wait for its own answer.
WITH {{moment}}
SELECT task.id, 'claimed', 'pending', task.state, task.worker_id, task.token, NULL::text, {{task}}
FROM dibs_tasks AS task
WHERE task.state = 'claimed' AND task.worker_id = :worker_id AND task.request = :request
  AND task.incarnation IS NOT DISTINCT FROM :incarnation AND task.lease_until > (SELECT now FROM moment)
ORDER BY task.id

-- name: peek
-- Promise: the ids that a claim would take now, best first. Parameters and words as in `claim`. Rows: (id).
WITH RECURSIVE {{lines}},
{{candidates}}
SELECT id FROM candidates ORDER BY rank LIMIT {{count}}

-- fragment: lines
-- The waiting lines that pass the filters: the pending tasks of a queue and type with the same number of attempts
-- left. Every filter is a choice of lines, and every order an index that begins with the line, so a claim reads only
-- what it takes. A fragment; parameters: queues, types, least. Words: open_queues, kinds (each found or named).
-- What was found is passed on in arrays, of which the planner expects ten rows: it expects a million lines of three
-- nested recursions, and a server with JIT then compiled for a second each claim.
{{open_queues}},
{{kinds}},
found_lines (queue, type, attempts_left) AS (
    SELECT queue, type, (SELECT attempts_left FROM dibs_tasks
                         WHERE state = 'pending' AND queue = kinds.queue COLLATE "C" AND type = kinds.type COLLATE "C"
                           AND attempts_left >= :least::int ORDER BY attempts_left LIMIT 1)
    FROM kinds
    UNION ALL
    SELECT queue, type, (SELECT attempts_left FROM dibs_tasks
                         WHERE state = 'pending' AND queue = found.queue COLLATE "C" AND type = found.type COLLATE "C"
                           AND attempts_left > found.attempts_left ORDER BY attempts_left LIMIT 1)
    FROM found_lines AS found WHERE found.attempts_left IS NOT NULL
),
lines AS MATERIALIZED (
    SELECT found.queue COLLATE "C" AS queue, found.type COLLATE "C" AS type, found.attempts_left
    FROM (SELECT array_agg(queue) AS queues, array_agg(type) AS types, array_agg(attempts_left) AS lefts
          FROM found_lines WHERE attempts_left IS NOT NULL) AS every,
         unnest(every.queues, every.types, every.lefts) AS found (queue, type, attempts_left)
)

-- fragment: queues_named
-- The queues that a claim names, without those that are paused. A fragment of `lines`; parameters: queues.
open_queues (queue) AS (
    SELECT wanted.queue
    FROM unnest(ARRAY(SELECT unnest(:queues::text[]))) AS wanted (queue)
    WHERE NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = wanted.queue COLLATE "C" AND paused_at IS NOT NULL)
)

-- fragment: queues_found
-- The queues that hold pending tasks and are not paused, for a claim that names none. A fragment of `lines`.
-- They are found by jumping from each to the next: one probe of an index for each, however many tasks there are.
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
-- The types that a claim names, in each open queue. A fragment of `lines`; parameters: types.
kinds (queue, type) AS (
    SELECT open_queues.queue, wanted.type FROM open_queues, unnest(ARRAY(SELECT unnest(:types::text[]))) AS wanted (type)
)

-- fragment: types_found
-- The types of the pending tasks in each open queue, for a claim that names none; found as in `queues_found`.
-- A fragment of `lines`.
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
kinds (queue, type) AS (
    SELECT found.queue, found.type
    FROM (SELECT array_agg(queue) AS queues, array_agg(type) AS types
          FROM found_types WHERE type IS NOT NULL) AS every,
         unnest(every.queues, every.types) AS found (queue, type)
)

-- fragment: in_line
-- The condition that a task stands in a line.
state = 'pending' AND queue = lines.queue AND type = lines.type AND attempts_left = lines.attempts_left

-- fragment: candidates_ordered
-- The first tasks of several lines in the order asked for, best first. Where there is only one, `from_one_line` needs
-- no candidates. Words: only (if_several, or nothing), order, reach. Index: the order's own, `reach` entries of each
-- line; only those few are sorted.
candidates AS MATERIALIZED (
    SELECT task.id, row_number() OVER (ORDER BY {{order}})::float8 AS rank
    FROM lines CROSS JOIN LATERAL (
        SELECT id, priority FROM dibs_tasks WHERE {{in_line}} ORDER BY {{order}} LIMIT {{reach}}
    ) AS task
    {{only}}
    ORDER BY rank LIMIT {{reach}}
)

-- fragment: candidates_levels
-- The first tasks in an order by priority whose order within a priority is not that of the index, best first.
-- Words: order, reach; beyond and levels (the way through the priorities), within (the order in each).
-- Index: dibs_tasks_by_priority. The priorities of a line are found by jumping from each to the next, and of each
-- `reach` entries are read, in either direction, until there are `reach` of the line: so these orders need no index of
-- their own.
candidates AS MATERIALIZED (
    SELECT task.id, row_number() OVER (ORDER BY {{order}})::float8 AS rank
    FROM lines CROSS JOIN LATERAL (
        WITH RECURSIVE level (priority) AS (
            (SELECT priority FROM dibs_tasks WHERE {{in_line}} ORDER BY {{levels}} LIMIT 1)
            UNION ALL
            SELECT (SELECT priority FROM dibs_tasks WHERE {{in_line}} AND priority {{beyond}} level.priority
                    ORDER BY {{levels}} LIMIT 1)
            FROM level WHERE level.priority IS NOT NULL
        )
        SELECT found.id, found.priority
        FROM level CROSS JOIN LATERAL (
            SELECT id, priority FROM dibs_tasks WHERE {{in_line}} AND priority = level.priority
            ORDER BY {{within}} LIMIT {{reach}}
        ) AS found
        LIMIT {{reach}}
    ) AS task
    ORDER BY rank LIMIT {{reach}}
)

-- fragment: candidates_race
-- The tasks that come first in a race, the random or the weighted one. Parameters: kind, undrawn_too. Words:
-- order (the key of the race), reach. Index: the race's own, `reach` entries of each line.
--
-- Every pending task of a line that races drew an exponential number on top of where the race stood when it became
-- pending; its rate is 1 in the random race and the task's weight in the weighted one. The smallest number wins, with a
-- probability proportional to its rate; by the lack of memory of that distribution the same holds for the next winner,
-- if the race moves on to where the last one won (`advance_race`). In a line that does not race nobody has a number:
-- there are no candidates then, unless that is no matter (`undrawn_too`), and the claim draws first.
{{undrawn}},
candidates AS MATERIALIZED (
    SELECT task.id, task.distance AS rank
    FROM lines
    JOIN dibs_races AS race ON race.queue = lines.queue AND race.type = lines.type
        AND race.attempts_left = lines.attempts_left AND race.kind = :kind
    CROSS JOIN LATERAL (
        SELECT id, {{order}} - race.position AS distance FROM dibs_tasks
        WHERE {{in_line}} AND {{order}} IS NOT NULL ORDER BY {{order}} LIMIT {{reach}}
    ) AS task
    WHERE :undrawn_too OR NOT EXISTS (SELECT FROM undrawn)
    ORDER BY rank LIMIT {{reach}}
)

-- fragment: overdue
-- Whether a sweep would find something to promote or to recover. A fragment; only looked at where its answer matters.
-- Indexes: dibs_tasks_due and dibs_tasks_leases, the first entry of each (and past steps that end with their lease).
overdue AS MATERIALIZED (
    SELECT coalesce((SELECT run_at FROM dibs_tasks WHERE state = 'scheduled' ORDER BY run_at LIMIT 1) <= moment.now, false)
        OR (SELECT lease_until FROM dibs_tasks WHERE state = 'claimed' AND lease_until <= moment.now {{except_ending_steps}}
            ORDER BY lease_until LIMIT 1) IS NOT NULL AS found
    FROM moment
)

-- fragment: random_place
-- A fresh place in the random race of the line that has this many attempts left: where the race stands now, plus an
-- exponential draw; none where the line does not race. A fragment; see `candidates_race`.
(SELECT race.position - ln(1 - random()) FROM dibs_races AS race
 WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}
   AND race.kind = 'random')

-- fragment: weighted_place
-- A fresh place in the weighted race, with the task's weight as the rate of its draw. A fragment; see `random_place`.
(SELECT race.position - ln(1 - random()) / greatest(task.priority::bigint + 1, 1) FROM dibs_races AS race
 WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}
   AND race.kind = 'weighted')

-- name: begin_races
-- Promise: the lines have a race of this kind; a new one stands at 0, and no task has drawn a number. Where there may
-- be tasks that came without a number, they are to be looked for now. Rows: none.
-- Parameters: items (a JSON array of the lines with kind). Safe: lines are written in one order, so two of these cannot
-- deadlock. Those who enqueue without having seen the new race have begun before this ended: see `draw`.
INSERT INTO dibs_races AS race (queue, type, attempts_left, kind, position, drawn_to, settles_after)
SELECT line.queue, line.type, line.attempts_left, line.kind, 0, 0, pg_current_xact_id()
FROM json_to_recordset(:items::json) AS line (queue text, type text, attempts_left int, kind text)
ORDER BY line.queue COLLATE "C", line.type COLLATE "C", line.attempts_left
ON CONFLICT (queue, type, attempts_left, kind) DO UPDATE SET drawn_to = 0, settles_after = NULL
WHERE race.drawn_to IS NULL AND race.settles_after < pg_snapshot_xmin(pg_current_snapshot())

-- fragment: undrawn
-- The lines in which tasks may wait without a number: those that do not race yet, those that are being drawn, and those
-- that are to be gone through once more (see `draw`). Parameters: kind.
undrawn AS MATERIALIZED (
    SELECT lines.queue, lines.type, lines.attempts_left
    FROM lines
    LEFT JOIN dibs_races AS race ON race.queue = lines.queue AND race.type = lines.type
        AND race.attempts_left = lines.attempts_left AND race.kind = :kind
    WHERE race.kind IS NULL OR race.drawn_to IS NOT NULL
       OR race.settles_after < pg_snapshot_xmin(pg_current_snapshot())
)

-- name: undrawn_lines
-- Promise: the lines that a claim in a race must let draw their numbers before it can claim.
-- Parameters: queues, types, least, kind. Rows: (queue, type, attempts_left).
WITH RECURSIVE {{lines}},
{{undrawn}}
SELECT * FROM undrawn

-- name: draw
-- Promise: the next tasks of the line that have no number in its race draw one, as they would if they came now.
-- Parameters: the line, kind. Words: key, rate, limit. Rows: (drawn_to); none where others have done it.
-- Index: dibs_tasks_by_age, `limit` entries.
--
-- Once through the line is not enough here: transactions that had not seen the race when they enqueued may commit after
-- this has looked. When none is left of those that were running at the end of the first time (settles_after), the line
-- is gone through once more, and settled. What slips through even so (of a transaction that reads an old snapshot)
-- draws its number when it is the oldest of its line (`advance_race`), or is claimed without one when nothing else is
-- left.
--
-- Safe: whoever draws holds the race's lock, and waits for nothing while it does: tasks that others hold are left out,
-- most likely they are just being claimed.
WITH race AS MATERIALIZED (
    SELECT * FROM dibs_races
    WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
      AND drawn_to IS NOT NULL
    FOR UPDATE
),
chunk AS MATERIALIZED (
    SELECT task.id FROM race AS lines CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks WHERE {{in_line}} AND id > lines.drawn_to ORDER BY id LIMIT {{limit}}
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
-- Promise: the races of the lines that passed the filters move on by `distance`; and the oldest task of each of them
-- has a number, if it somehow came without one and nobody holds it: so none is passed over for ever. Rows: none.
-- Parameters: queues, types, least, kind, distance. Words: key, rate. Safe: lines are locked in one order, so two of
-- these cannot deadlock; claims that overlap may both move a race on, which only shifts the odds between them a little.
WITH RECURSIVE {{lines}},
held AS MATERIALIZED (
    SELECT race.* FROM lines
    JOIN dibs_races AS race ON race.queue = lines.queue AND race.type = lines.type
        AND race.attempts_left = lines.attempts_left AND race.kind = :kind
    ORDER BY race.queue, race.type, race.attempts_left
    FOR UPDATE OF race
),
passed_over AS MATERIALIZED (
    SELECT locked.id, lines.position
    FROM held AS lines
    CROSS JOIN LATERAL (SELECT id, {{key}} AS key FROM dibs_tasks WHERE {{in_line}} ORDER BY id LIMIT 1) AS oldest
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
