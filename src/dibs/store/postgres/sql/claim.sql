-- Claims: which tasks a worker gets, and the random orders.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).
--
-- A claim tries one tier after the other until it has found enough tasks (see dialect.py). The scan reads the first
-- claimable tasks of the whole store in the requested order, up to `bound`, and takes those that pass the filters. If
-- too many others come first, a merge reads streams: the claimable tasks of each named type, or of each queue. Both
-- are exact in order. Their cost depends neither on the number of queues, types and tasks in the store, nor on how many
-- tasks come first that the worker does not serve.

-- name: claim
-- Promise: the first candidates in the requested order now belong to this worker, each under its next token; never more
-- than `exact_count`.
-- Parameters: queues, types, min_attempts_left, kind, is_continued, worker_id, incarnation, lease, ahead, request,
-- check_overdue, exact_count, now, by.
-- Words: limited (limited_work, if_ever_limited or no_limited_work), tier (CTEs that find `candidates`; empty for a
-- scan), candidates (their query), left (left_by_scan, left_by_merge or left_by_random), after (CTEs of the random
-- orders, or empty), count, holder_columns, and the words of the fragments.
-- Rows: what is left (see `left_by_scan`), whether something is overdue, history columns, task columns; one row with
-- NULLs if no task was claimed. Overdue tasks are looked for only if a sweep is due (`check_overdue`; then nothing is
-- claimed if something is overdue) or if there is nothing to claim.
-- Indexes: see `scan`, `scan_levels`, `scan_random` and `read_stream`; the primary key for each candidate.
--
-- Safe: a candidate is only a guess. The statement locks the candidate, unless another transaction holds the lock, and
-- checks under the lock that the candidate is still claimable (`still_claimable`). Of two claims that guess the same
-- task, one gets the task and the other takes its next candidate. The LIMITs are outside of the locking, in a
-- materialized CTE: no more rows are locked than claimed, and the UPDATE cannot run the choice a second time. A limit
-- takes rows one by one, so a scan ends with the last task that it needs. Counts are words, not parameters, because the
-- planner must see how few rows are wanted. The word `count` is rounded up, because each number would need its own
-- plan; `exact_count` is the number of tasks. row_number() is outside of the limits: it may read ahead, and every row
-- that is read is locked.
WITH RECURSIVE {{moment}},
{{overdue}},
limited_work AS MATERIALIZED ({{limited}}),
{{tier}}
picked AS MATERIALIZED (
    SELECT id, row_number() OVER () AS rank FROM (
        SELECT id FROM (
            SELECT locked.id
            FROM ({{candidates}}) AS candidates CROSS JOIN LATERAL (
                SELECT id FROM dibs_tasks WHERE id = candidates.id AND {{still_claimable}} FOR UPDATE SKIP LOCKED
            ) AS locked
            LIMIT {{count}}
        ) AS locked
        LIMIT {{wanted}}
    ) AS picked
),
{{after}}
{{claimed}}
SELECT CASE WHEN (SELECT found FROM limited_work) THEN 'limited'
            WHEN (SELECT count(*) FROM picked) < {{wanted}} THEN {{left}} END,
    CASE WHEN :check_overdue OR NOT EXISTS (SELECT FROM picked) THEN (SELECT found FROM overdue) ELSE false END,
    changed.*
FROM (VALUES (1)) AS always LEFT JOIN (changed JOIN picked ON picked.id = changed.task_id) ON true
ORDER BY picked.rank

-- name: claim_any
-- Promise: as `claim`, but stream after stream, each in the order of its index: for the moment when other claims are
-- taking all candidates of `claim`, or when tasks without a random-order number are left. Never empty while a matching
-- task is claimable and not locked.
-- Parameters and rows as in `claim`. Words: names, in_stream, index_order, age, passes, count.
-- Index: that of the streams, or dibs_tasks_by_priority or dibs_tasks_by_age for the whole store.
-- Safe: rows are locked as they are read, and no more than `count` rows.
WITH RECURSIVE {{moment}},
{{names}},
picked AS MATERIALIZED (
    SELECT id FROM (
        SELECT task.id
        FROM names AS stream CROSS JOIN LATERAL (
            SELECT id FROM dibs_tasks WHERE {{claimable}} {{in_stream}} {{passes}}
            ORDER BY {{index_order}} LIMIT {{count}} FOR UPDATE SKIP LOCKED
        ) AS task
        LIMIT {{count}}
    ) AS locked
    LIMIT :exact_count
),
{{claimed}}
SELECT NULL, false, changed.* FROM changed

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
CASE WHEN (SELECT found FROM limited_work) OR (:check_overdue AND (SELECT found FROM overdue)) THEN 0
     ELSE :exact_count END

-- fragment: limited_work
-- Whether a claim with these filters may find work with limits: tasks of an open backlog, or something to register or to
-- subtract first (see admission.py). Then nothing is claimed here. Parameters: queues, types. Words: in_queues, in_types,
-- unlimited. Indexes: dibs_tasks_unregistered, dibs_tasks_returning, dibs_counters_opening, dibs_backlogs_open.
SELECT EXISTS (SELECT FROM dibs_flow) AND (
    EXISTS (SELECT FROM dibs_signals)
    OR EXISTS (SELECT FROM dibs_tasks WHERE state = 'pending' AND backlog IS NOT NULL AND NOT parked)
    OR EXISTS (SELECT FROM dibs_tasks WHERE permits IS NOT NULL AND state <> 'claimed')
    OR EXISTS (SELECT FROM dibs_counters, moment WHERE opens_at IS NOT NULL AND opens_at <= moment.now)
    OR EXISTS (SELECT FROM dibs_counters, moment
               WHERE opens_at IS NOT NULL AND noted_at > moment.now + {{clock_slack}})
    OR EXISTS (SELECT FROM dibs_backlogs WHERE closed_on IS NULL {{in_queues}} {{in_types}} {{unlimited}})) AS found

-- fragment: if_ever_limited
-- Whether the store has ever had a limit. Then nothing is claimed here, and the claim starts again with `limited_work`: to
-- prepare and start that condition costs a sixth of a claim.
SELECT EXISTS (SELECT FROM dibs_flow) AS found

-- fragment: no_limited_work
-- In place of `limited_work`: the claim takes plain tasks only.
SELECT false AS found

-- fragment: still_claimable
-- A condition of a row that is looked up by its id: the task is claimable. See `unindexed`.
{{unindexed: state}} = 'pending' AND NOT parked AND backlog IS NULL

-- fragment: overdue
-- Whether a sweep would find tasks to promote, to recover, to expire or to unpark. A fragment; evaluated only if the result
-- matters. Indexes: dibs_tasks_due, dibs_tasks_leases and dibs_tasks_expiring, the first entry of each (after steps that
-- end with their lease), and dibs_pauses_resumed.
overdue AS MATERIALIZED (
    SELECT coalesce((SELECT run_at FROM dibs_tasks WHERE state = 'scheduled' ORDER BY run_at LIMIT 1) <= moment.now, false)
        OR (SELECT lease_until FROM dibs_tasks WHERE state = 'claimed' AND lease_until <= moment.now {{except_ending_steps}}
            ORDER BY lease_until LIMIT 1) IS NOT NULL
        OR coalesce((SELECT expires_at FROM dibs_tasks WHERE {{may_expire}} ORDER BY expires_at LIMIT 1) <= moment.now, false)
        OR EXISTS (SELECT FROM dibs_pauses WHERE parked AND paused_at IS NULL) AS found
    FROM moment
)

-- name: claim_by_id
-- Promise: this task now belongs to this worker, if it was pending and not expired, and neither its queue nor its type
-- is paused.
-- Parameters: id, worker_id, incarnation, lease, request, now, by. Rows: history columns, task columns; none if not
-- claimable.
-- Safe: one statement; the loser of a race waits for the winner's commit and finds the task no longer pending.
WITH {{moment}},
changed AS (
    UPDATE dibs_tasks AS task
    SET state = 'claimed', token = task.token + 1, worker_id = :worker_id, incarnation = :incarnation,
        claimed_at = moment.now, lease_until = moment.now + :lease, ahead = false,
        request = :request, progress = NULL, progress_message = NULL, parked = false
    FROM moment
    WHERE task.id = :id AND {{unindexed: state}} = 'pending' AND backlog IS NULL
      AND coalesce(task.expires_at > moment.now, true)
      AND NOT EXISTS (SELECT FROM dibs_pauses WHERE scope = 'queue' AND name = task.queue AND paused_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM dibs_pauses WHERE scope = 'type' AND name = task.type AND paused_at IS NOT NULL)
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
-- Promise: the ids that a claim would take now, in order. Parameters and words as in `claim`.
-- Rows: (id, NULL), and (NULL, what is left) if there are fewer than `exact_count`.
WITH RECURSIVE {{moment}},
{{tier}}
picked AS MATERIALIZED (SELECT id FROM ({{candidates}}) AS candidates LIMIT {{count}})
SELECT id, NULL FROM picked
UNION ALL
SELECT NULL, {{left}} WHERE (SELECT count(*) FROM picked) < :exact_count

-- fragment: in_open_queue
-- A condition: the queue of the task is not paused. The tasks of a paused queue are parked soon, but not at once. If no
-- queue is paused, the queue is not looked up. A boolean coalesce: the planner takes `(subquery) IS NULL` for so rare
-- that it sorts all tasks instead of reading the first ones in the order of the index. Index: dibs_pauses_paused.
AND CASE WHEN EXISTS (SELECT FROM dibs_pauses WHERE scope = 'queue' AND paused_at IS NOT NULL)
         THEN NOT {{paused: 'queue' AND name = queue}} ELSE true END

-- fragment: of_open_type
-- A condition: the type of the task is not paused. The paused types are hashed, unlike paused queues, of which there may
-- be thousands: a look-up for each task would make the planner expect a high cost of a long stream, and compile the
-- statement first. Index: dibs_pauses_paused.
AND (type IN (SELECT name FROM dibs_pauses WHERE scope = 'type' AND paused_at IS NOT NULL)) IS NOT TRUE

-- fragment: is_open
-- A condition: neither the queue nor the type of the task is paused. One condition instead of two: the planner expects
-- each to remove half of the tasks, and a stream to be read twice as far.
AND CASE WHEN EXISTS (SELECT FROM dibs_pauses WHERE paused_at IS NOT NULL)
         THEN NOT ({{paused: 'queue' AND name = queue}}
                   OR (type IN (SELECT name FROM dibs_pauses WHERE scope = 'type' AND paused_at IS NOT NULL)) IS TRUE)
         ELSE true END

-- fragment: paused
-- Whether this queue or type is paused. The argument: the scope, and the condition of the name.
coalesce((SELECT paused_at IS NOT NULL FROM dibs_pauses WHERE scope = {{argument}}), false)

-- fragment: not_expired
-- A condition: the task has not expired. Upkeep cancels expired tasks, but not at once. A boolean coalesce: the planner
-- would take many rows for expired where all expiries are past, and sort. Safe: the expiry of a waiting task does not
-- change, except that a retry removes it, so the condition holds as well when the claim has locked the row.
AND coalesce(expires_at > (SELECT now FROM moment), true)

-- fragment: in_named_queues
-- A condition: the task is in one of the queues that the claim names. Parameters: queues. The names are hashed, because
-- there may be many.
AND (queue IN (SELECT unnest(:queues::text[]) COLLATE "C")) IS TRUE

-- fragment: of_named_types
-- A condition: the type of the task is one of the types that the claim names; as `in_named_queues`. Parameters: types.
AND (type IN (SELECT unnest(:types::text[]) COLLATE "C")) IS TRUE

-- fragment: with_attempts_left
-- A condition: the task has enough attempts left. Parameters: min_attempts_left.
AND attempts_left >= :min_attempts_left::int

-- fragment: scan
-- The candidates of a scan: of the first `bound` claimable tasks of the store, or of one stream, those that pass the
-- filters. Words: first (first_in_order or first_in_levels), near, bound, passes. The query is not materialized, so no
-- more tasks are read than needed. It has two parts, of which the second is read only if the first does not suffice:
-- the planner must see how few rows are wanted as a rule, else it sorts all tasks of a small table.
SELECT id FROM (({{first: {{near}}}} LIMIT {{near}})
                UNION ALL ({{first: {{bound}}}} OFFSET {{near}} LIMIT {{bound}} - {{near}})) AS task
WHERE true {{passes}}

-- fragment: age_in_store
-- The id, as the index of all tasks by priority has it (see the migration).
(id + 0)

-- fragment: age_in_stream
-- The id, as the indexes of streams have it.
(id - 0)

-- fragment: number_in_stream
-- The random-order number, as the indexes of streams have it. Words: key.
({{key}} - 0)

-- fragment: first_in_order
-- The claimable tasks of the store, or of one stream, in an order that an index has. Words: in_stream, in_index,
-- numbered, index_order.
-- Index: dibs_tasks_by_priority, dibs_tasks_by_age, dibs_tasks_by_random or dibs_tasks_by_weight, or that of the stream.
SELECT id, queue, type, attempts_left, priority, expires_at, {{number}} AS number FROM dibs_tasks
WHERE {{claimable}} {{numbered}} {{in_stream}} {{in_index}} ORDER BY {{index_order}}

-- fragment: any_priority
-- A condition that every task meets. It is a condition for the index, and without statistics the planner expects one
-- row of it: the planner reads the index in its order then. Otherwise it would sort all tasks of a table that was filled
-- a moment ago.
AND priority BETWEEN -2147483648 AND 2147483647

-- fragment: any_age
-- The same for the index of ages.
AND id BETWEEN 0 AND 9223372036854775807

-- fragment: any_number
-- The same for the indexes of random-order numbers. Words: key.
AND {{key}} BETWEEN 0 AND 'Infinity'

-- fragment: first_in_levels
-- The claimable tasks of the store, or of one stream, in an order by priority, where the order within a priority is not
-- that of the index. The argument: how many are read of each priority, at most. Words: in_stream, beyond and levels (how
-- to step from one priority to the next), within (the order within a priority). Index: dibs_tasks_by_priority, or that
-- of the stream. The recursion jumps from each priority to the next, and reads the tasks of each priority in either
-- direction: so these orders need no index of their own.
SELECT found.* FROM (
    WITH RECURSIVE level (priority) AS (
        (SELECT priority FROM dibs_tasks WHERE {{claimable}} {{in_stream}} {{in_index}} ORDER BY {{levels}} LIMIT 1)
        UNION ALL
        SELECT (SELECT priority FROM dibs_tasks WHERE {{claimable}} {{in_stream}} AND priority {{beyond}} level.priority
                ORDER BY {{levels}} LIMIT 1)
        FROM level WHERE level.priority IS NOT NULL
    )
    SELECT priority FROM level
) AS level CROSS JOIN LATERAL (
    SELECT id, queue, type, attempts_left, priority, expires_at FROM dibs_tasks
    WHERE {{claimable}} {{in_stream}} AND priority = level.priority ORDER BY {{within}} LIMIT {{argument}}
) AS found

-- fragment: left_by_scan
-- What is left after a scan that found too few tasks: 'nothing', or 'beyond' (there are claimable tasks beyond the
-- bound, which may pass the filters), or 'locked' (there are enough tasks within the bound, and other transactions have
-- locked them). A fragment; parameters: exact_count. Words: those of `scan`, cut, count.
CASE WHEN NOT {{cut}} THEN 'nothing'
     WHEN (SELECT count(*) FROM ({{scan}} LIMIT {{count}}) AS matching) >= :exact_count THEN 'locked'
     ELSE 'beyond' END

-- fragment: reach
-- How many candidates a merge looks for. A fragment; parameters: exact_count. Words: extra.
(:exact_count::bigint + {{extra}})

-- fragment: merge
-- The candidates of a merge: the first tasks of all streams in the requested order, up to `reach`. Words: streams (CTEs),
-- read (read_stream or read_part_of_stream), read_to_bar, order.
-- First comes the head of each stream; only the streams with the first `reach` heads can have candidates. Of these, the
-- first `each` tasks are read, twice `reach` altogether. The streams are sorted by the last of these tasks. That of the
-- stream number `reach / each`, rounded up, is the bar: at least `reach` tasks come no later. Only the streams before
-- this one may have more candidates, and are read again, up to the bar.
{{streams}},
heads AS MATERIALIZED (
    SELECT stream.*, row_number() OVER (ORDER BY {{order}}) AS place
    FROM (SELECT stream.name, stream.kind, stream.level, head.* FROM streams AS stream CROSS JOIN LATERAL ({{read}} LIMIT 1) AS head
          ORDER BY {{order}} LIMIT {{reach}}) AS stream
),
share AS MATERIALIZED (SELECT 2 * {{reach}} / greatest(count(*), 1) + 1 AS each FROM heads),
begun AS MATERIALIZED (
    SELECT stream.place, task.*
    FROM heads AS stream CROSS JOIN LATERAL (
        SELECT *, row_number() OVER () AS nth
        FROM ({{read}} LIMIT (SELECT least(each, {{reach}}) FROM share)) AS task
    ) AS task
),
last AS MATERIALIZED (
    SELECT begun.*, row_number() OVER (ORDER BY {{order}}) * each < {{reach}} AS is_before
    FROM begun, share WHERE nth = each
),
bar AS MATERIALIZED (SELECT priority, id, number FROM last WHERE NOT is_before ORDER BY {{order}} LIMIT 1),
merged AS MATERIALIZED (
    SELECT task.*, row_number() OVER (ORDER BY {{order}}) AS rank FROM (
        SELECT id, priority, number, passes FROM begun
        WHERE place <> ALL (ARRAY(SELECT place FROM last WHERE is_before))
        UNION ALL
        SELECT task.* FROM heads AS stream CROSS JOIN LATERAL ({{read_to_bar}}) AS task
        WHERE stream.place = ANY (ARRAY(SELECT place FROM last WHERE is_before))
    ) AS task
    ORDER BY rank LIMIT {{reach}}
),
matching AS MATERIALIZED (
    SELECT id, priority, number FROM merged
    WHERE rank < coalesce((SELECT min(rank) FROM merged WHERE NOT passes), {{reach}} + 1) ORDER BY rank
),

-- fragment: read_to_priority
-- Reads a stream up to the bar, where the order is by priority and age: first the higher priorities, then that of the
-- bar. Two ranges, because one would go on to the end of the bar's priority.
({{read: AND priority > coalesce((SELECT priority FROM bar)::bigint, -2147483649)}} LIMIT {{reach}})
UNION ALL
({{read: AND priority = (SELECT priority FROM bar) AND {{age}} <= (SELECT id FROM bar)}} LIMIT {{reach}})

-- fragment: read_range
-- Reads a stream up to the bar, where the order within the stream is that of one column. Words: range
-- (from_oldest, from_newest, or from_smallest for random-order numbers).
{{read: {{range}}}} LIMIT {{reach}}

-- fragment: from_oldest
-- The range of ids up to the bar, the oldest first. Words: bar_holds (a condition: the bar holds for this stream; else
-- all its tasks come before the bar).
AND {{age}} <= coalesce((SELECT id FROM bar WHERE {{bar_holds}}), 9223372036854775807)

-- fragment: from_newest
-- The range of ids up to the bar, the newest first. Words: bar_holds.
AND {{age}} >= coalesce((SELECT id FROM bar WHERE {{bar_holds}}), 0)

-- fragment: from_smallest
-- The range of random-order numbers up to the bar. Words: key.
AND {{number_in_stream}} <= coalesce((SELECT number FROM bar), 'Infinity')

-- fragment: left_by_merge
-- What is left after a merge that found too few tasks, as in `left_by_scan`. Words: cut.
CASE WHEN (SELECT count(*) FROM matching) > (SELECT count(*) FROM picked) THEN 'locked'
     WHEN {{cut}} THEN 'beyond' ELSE 'nothing' END

-- fragment: beyond_bound
-- A condition: there are claimable tasks beyond the bound of a scan. Index: dibs_tasks_by_priority, or that of the
-- stream.
EXISTS (SELECT FROM dibs_tasks WHERE {{claimable}} {{in_stream}} ORDER BY priority DESC, {{age}} OFFSET {{bound}} LIMIT 1)

-- fragment: beyond_walk
-- A condition: a merge has ended where the walk through a stream ended (see `read_part_of_stream`).
EXISTS (SELECT FROM merged WHERE NOT passes)

-- fragment: read_stream
-- The tasks of a stream that pass the filters, in the requested order. Words: number (the column of the random-order
-- number, or NULL), numbered, in_stream, passes, index_order, bound (larger than `reach`: a constant, so that
-- the planner sees how few rows are wanted).
-- Index: that of the streams in this order.
SELECT id, priority, number, true AS passes FROM (
    SELECT id, priority, {{number}} AS number FROM dibs_tasks
    WHERE {{claimable}} {{numbered}} {{in_stream}} {{argument}} {{passes}}
    ORDER BY {{index_order}} LIMIT {{bound}}
) AS task

-- fragment: read_part_of_stream
-- As `read_stream`, but no further than `bound` tasks of the stream. The task after these is returned as one that does
-- not pass: what comes later is not known. For a claim that names types: many tasks of its types may be in other queues,
-- or many tasks of its queues of other types, and the claim must not read all of them before it tries other streams.
SELECT id, priority, number, passes FROM (
    SELECT id, priority, number, nth, (nth <= {{bound}} {{passes}}) AS passes FROM (
        SELECT *, row_number() OVER () AS nth FROM (
            SELECT id, queue, type, attempts_left, priority, expires_at, {{number}} AS number FROM dibs_tasks
            WHERE {{claimable}} {{numbered}} {{in_stream}} {{argument}} ORDER BY {{index_order}} LIMIT {{bound}} + 1
        ) AS task
    ) AS task
) AS task
WHERE passes OR nth > {{bound}}

-- fragment: types_named
-- The types that a claim names, without paused types. Index: dibs_pauses_pkey. The array keeps the planner from
-- expecting many.
names AS MATERIALIZED (
    SELECT name COLLATE "C" AS name, NULL AS kind FROM unnest(ARRAY(SELECT unnest(:types::text[]))) AS named (name)
    WHERE NOT {{paused: 'type' AND dibs_pauses.name = named.name COLLATE "C"}}
)

-- fragment: queues_named
-- The queues that a claim names, without paused queues. Index: dibs_pauses_pkey.
names AS MATERIALIZED (
    SELECT name COLLATE "C" AS name, NULL AS kind FROM unnest(ARRAY(SELECT unnest(:queues::text[]))) AS named (name)
    WHERE NOT {{paused: 'queue' AND dibs_pauses.name = named.name COLLATE "C"}}
)

-- fragment: queues_found
-- The queues that have claimable tasks and are not paused, for a claim that names neither queues nor types.
-- Index: dibs_tasks_by_queue. The recursion jumps from each queue to the next: one probe for each queue, however many
-- tasks there are.
found (name) AS (
    (SELECT queue FROM dibs_tasks WHERE {{claimable}} ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM dibs_tasks WHERE {{claimable}} AND queue > found.name ORDER BY queue LIMIT 1)
    FROM found WHERE found.name IS NOT NULL
),
names AS MATERIALIZED (
    SELECT name COLLATE "C" AS name, NULL AS kind
    FROM unnest(ARRAY(SELECT name FROM found WHERE name IS NOT NULL)) AS named (name)
    WHERE NOT {{paused: 'queue' AND dibs_pauses.name = named.name COLLATE "C"}}
)

-- fragment: pairs_named
-- The pairs of the queues and types that a claim names, without paused queues and types. Index: dibs_pauses_pkey.
names AS MATERIALIZED (
    SELECT named.name COLLATE "C" AS name, of_type.kind COLLATE "C" AS kind
    FROM unnest(ARRAY(SELECT unnest(:queues::text[]))) AS named (name),
         unnest(ARRAY(SELECT unnest(:types::text[]))) AS of_type (kind)
    WHERE NOT {{paused: 'queue' AND dibs_pauses.name = named.name COLLATE "C"}}
      AND NOT {{paused: 'type' AND dibs_pauses.name = of_type.kind COLLATE "C"}}
)

-- fragment: attempts_found
-- The numbers of attempts left that claimable tasks have, from the one that the claim needs at least. Parameters:
-- min_attempts_left. Index: dibs_tasks_by_attempts, one probe for each number.
found (name) AS (
    (SELECT attempts_left FROM dibs_tasks WHERE {{claimable}} AND attempts_left >= :min_attempts_left::int
     ORDER BY attempts_left LIMIT 1)
    UNION ALL
    SELECT (SELECT attempts_left FROM dibs_tasks WHERE {{claimable}} AND attempts_left > found.name
            ORDER BY attempts_left LIMIT 1)
    FROM found WHERE found.name IS NOT NULL
),
names AS MATERIALIZED (
    SELECT name, NULL AS kind FROM unnest(ARRAY(SELECT name FROM found WHERE name IS NOT NULL)) AS named (name)
)

-- fragment: whole_store
-- The whole store as one stream, for `claim_any`.
names AS (SELECT 1)

-- fragment: streams_of_names
-- One stream for each named type or queue, in an order that its index has.
{{names}},
streams AS (SELECT name, kind, NULL::integer AS level FROM names)

-- fragment: streams_of_levels
-- One stream for each priority of each name, in an order that is that of the index only within a priority. Words: names,
-- of_name (the condition that a task is of a name), collated (the collation of the names, if they are texts). Index: that
-- of the streams by priority. The recursion jumps from each priority of a name to the next. The array keeps the planner
-- from expecting many.
{{names}},
levels (name, kind, level) AS (
    SELECT name, kind, (SELECT priority FROM dibs_tasks WHERE {{claimable}} {{of_name}}
                        ORDER BY priority DESC, {{age}} LIMIT 1)
    FROM names AS stream
    UNION ALL
    SELECT name, kind, (SELECT priority FROM dibs_tasks WHERE {{claimable}} {{of_name}} AND priority < stream.level
                        ORDER BY priority DESC, {{age}} LIMIT 1)
    FROM levels AS stream WHERE level IS NOT NULL
),
streams AS MATERIALIZED (
    SELECT stream.name {{collated}} AS name, stream.kind COLLATE "C" AS kind, stream.level
    FROM (SELECT array_agg(name) AS names, array_agg(kind) AS kinds, array_agg(level) AS levels
          FROM levels WHERE level IS NOT NULL) AS every,
         unnest(every.names, every.kinds, every.levels) AS stream (name, kind, level)
)

-- fragment: scan_random
-- The tasks that a scan in random order finds, as in `scan`. Words: those of `scan`, number.
matching AS MATERIALIZED (
    SELECT id, priority, number
    FROM (({{first}} LIMIT {{near}}) UNION ALL ({{first}} OFFSET {{near}} LIMIT {{bound}} - {{near}})) AS task
    WHERE true {{passes}} LIMIT {{reach}}
),

-- fragment: random_candidates
-- The candidates in random or weighted order. Parameters: kind, is_continued (an earlier tier of this claim has
-- claimed tasks). Words: rate.
--
-- A row of dibs_random_orders is the state of one random order (`kind`). When a task becomes pending, the task gets a
-- random-order number: the position of the order plus an exponential random number, whose rate is 1 in random order and
-- the weight of the task in weighted order. The task with the smallest number is claimed first; the probability of that
-- is proportional to its rate. The exponential distribution has no memory, so the same holds for the next claim, if the
-- position advances to the number of the claimed task (`after_random`). A task whose number is below the position was
-- passed over: by claims with other filters, or because its claim was rolled back. By the same property its chance is
-- right if its number is drawn again from the position. Until the tasks of the store are numbered there are no
-- candidates, and the claim numbers the tasks first. A claim that has already claimed tasks cannot begin again: it goes
-- on with the numbers that there are, although the store may need new numbers since the statement before.
random_order AS MATERIALIZED (
    SELECT position FROM dibs_random_orders
    WHERE kind = :kind AND (:is_continued OR (NOT ended AND numbered_to IS NULL
      AND coalesce(settles_after >= pg_snapshot_xmin(pg_current_snapshot()), true)))
),
drawn AS MATERIALIZED (
    SELECT id, number < position AS passed_over,
        CASE WHEN number < position THEN position - ln(1 - random()) / {{rate}} ELSE number END AS number
    FROM matching AS task, random_order ORDER BY 3
),

-- fragment: left_by_random
-- What is left after a claim in random order that found too few tasks: as in `left_by_scan`, 'unnumbered' if tasks must
-- be numbered first, and 'locked' if only tasks without a number may be left. Words: cut.
CASE WHEN NOT EXISTS (SELECT FROM random_order) THEN 'unnumbered'
     WHEN (SELECT count(*) FROM matching) >= :exact_count OR NOT {{cut}} THEN 'locked'
     ELSE 'beyond' END

-- fragment: after_random
-- The position advances to the number of the last claimed task, unless all candidates were passed over: then there may
-- be more such tasks, the candidates are only some of them, and some of the candidates get new numbers. The oldest task
-- of the store gets a number, if it has none: so no task is passed over for ever. Words: key, rate, reach.
-- Safe: rows that other transactions have locked are skipped, so the statement waits for no lock. Concurrent claims may
-- both advance the position, or only one of them, which shifts the odds between them a little.
passed_over AS MATERIALIZED (
    SELECT count(*) >= {{reach}} AND bool_and(passed_over) AS all FROM drawn
),
to_number AS MATERIALIZED (
    (SELECT id FROM drawn WHERE (SELECT passed_over.all FROM passed_over)
       AND id <> ALL (ARRAY(SELECT id FROM picked)) LIMIT 32)
    UNION ALL
    SELECT id FROM (SELECT id, {{key}} AS number FROM dibs_tasks WHERE {{claimable}} ORDER BY id LIMIT 1) AS oldest
    WHERE number IS NULL
),
numbered AS (
    UPDATE dibs_tasks AS task SET {{key}} = random_order.position - ln(1 - random()) / {{rate}}
    FROM random_order
    WHERE task.id = ANY (ARRAY(
        SELECT id FROM dibs_tasks WHERE EXISTS (SELECT FROM picked) AND id = ANY (ARRAY(SELECT id FROM to_number))
          AND {{still_claimable}} FOR UPDATE SKIP LOCKED))
),
advanced AS (
    UPDATE dibs_random_orders AS noted
    SET used_at = moment.now,
        position = greatest(noted.position, (SELECT max(number) FROM drawn
            WHERE NOT (SELECT passed_over.all FROM passed_over) AND id = ANY (ARRAY(SELECT id FROM picked))))
    FROM moment
    WHERE kind = ANY (ARRAY(SELECT kind FROM dibs_random_orders
                            WHERE EXISTS (SELECT FROM picked) AND kind = :kind FOR UPDATE SKIP LOCKED))
),

-- fragment: random_place
-- A new number in random order: the position plus an exponential random number; NULL if no claim uses the order. A
-- fragment; see `random_candidates`. The position is read once for a statement.
(SELECT position FROM dibs_random_orders WHERE kind = 'random' AND NOT ended) - ln(1 - random())

-- fragment: weighted_place
-- A new number in weighted order; the rate is the weight of the task. A fragment; see `random_place`.
(SELECT position FROM dibs_random_orders WHERE kind = 'weighted' AND NOT ended)
    - ln(1 - random()) / greatest(task.priority::bigint + 1, 1)

-- name: begin_random_order
-- Promise: the random order has begun: from now on tasks get their numbers when they become pending. A new order has
-- position 0; an order that had ended keeps its position. If tasks may have no number although the order was numbered,
-- its tasks are to be numbered again. Parameters: kind, now. Rows: none.
-- Safe: a transaction that makes a task pending without having seen the row began before this statement's transaction
-- ended: see `number`.
{{with_moment}}
INSERT INTO dibs_random_orders AS noted (kind, position, numbered_to, settles_after, used_at)
VALUES (:kind, 0, 0, pg_current_xact_id(), {{now}})
ON CONFLICT (kind) DO UPDATE
SET ended = false, numbered_to = 0, used_at = excluded.used_at,
    settles_after = CASE WHEN noted.ended THEN excluded.settles_after END
WHERE noted.ended OR (noted.numbered_to IS NULL AND noted.settles_after < pg_snapshot_xmin(pg_current_snapshot()))

-- name: number
-- Promise: the next claimable tasks that have no number get one, as if they became pending now.
-- Parameters: kind. Words: key, rate, limit. Rows: (numbered_to); none if another transaction has finished the
-- numbering. Index: dibs_tasks_by_age, `limit` entries.
--
-- Numbering the store once is not enough: a transaction that had not seen the row of dibs_random_orders when it made a
-- task pending may commit after this statement has read the tasks. When all transactions have ended that were running at
-- the end of the first numbering (settles_after), the store is numbered once more, and is then complete. A task that is
-- missed even so (of a transaction that reads an old snapshot) gets its number when it is the oldest of the store
-- (`after_random`), or is claimed without a number when no other task is left.
--
-- Safe: the statement holds the lock of the row of dibs_random_orders, and waits for no other lock meanwhile: it skips
-- tasks that other transactions have locked, most likely because they are being claimed.
WITH random_order AS MATERIALIZED (
    SELECT * FROM dibs_random_orders WHERE kind = :kind AND numbered_to IS NOT NULL FOR UPDATE
),
chunk AS MATERIALIZED (
    SELECT task.id FROM random_order CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks WHERE {{claimable}} AND id > random_order.numbered_to ORDER BY id LIMIT {{limit}}
    ) AS task
),
free AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE id = ANY (ARRAY(SELECT id FROM chunk)) AND {{still_claimable}} AND {{key}} IS NULL
    FOR UPDATE SKIP LOCKED
),
numbered AS (
    UPDATE dibs_tasks AS task SET {{key}} = random_order.position - ln(1 - random()) / {{rate}}
    FROM random_order WHERE task.id = ANY (ARRAY(SELECT id FROM free))
),
reached AS MATERIALIZED (
    SELECT CASE WHEN count(*) = {{limit}} THEN max(id) END AS id FROM chunk
)
UPDATE dibs_random_orders AS noted
SET numbered_to = reached.id,
    settles_after = CASE WHEN reached.id IS NOT NULL THEN noted.settles_after
                         WHEN noted.settles_after IS NOT NULL THEN pg_current_xact_id() END
FROM random_order, reached
WHERE noted.kind = random_order.kind
RETURNING noted.numbered_to

-- name: claim_indexes
-- Promise: the indexes of the tasks that can be used. Rows: (name).
SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'dibs_tasks'::regclass AND indisvalid

-- name: request_index
-- Promise: upkeep will build this index of streams. Parameters: name, now. Rows: none.
{{with_moment}}
INSERT INTO dibs_stream_indexes (name, requested_at) VALUES (:name, {{now}}) ON CONFLICT (name) DO NOTHING

-- name: requested_indexes
-- Promise: the requested indexes of streams, without those that could not be built in the last ten minutes. Rows:
-- (name).
SELECT name FROM dibs_stream_indexes
WHERE failed_at IS NULL OR failed_at < extract(epoch FROM clock_timestamp()) * 1000000 - 600000000
ORDER BY requested_at, name

-- name: overdue_indexes
-- Promise: the indexes that were requested more than a minute ago, and are not built. Rows: (name, error).
SELECT name, error FROM dibs_stream_indexes
WHERE requested_at < extract(epoch FROM clock_timestamp()) * 1000000 - 60000000
  AND NOT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(name) AND indisvalid)
ORDER BY name

-- name: note_index_built
-- Promise: the index is no longer requested. Parameters: name. Rows: none.
DELETE FROM dibs_stream_indexes WHERE name = :name

-- name: note_index_error
-- Promise: the reason why the index could not be built is stored, for `dibs doctor`. Parameters: name, error. Rows:
-- none.
UPDATE dibs_stream_indexes SET error = :error, failed_at = extract(epoch FROM clock_timestamp()) * 1000000
WHERE name = :name

-- name: owns_tasks
-- Promise: whether the role may create indexes of the tasks. Rows: (boolean).
SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'dibs_tasks'::regclass

-- name: being_built
-- Promise: whether another session holds the lock of a build on the tasks (or of a vacuum). Rows: (boolean).
SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'dibs_tasks'::regclass AND granted
               AND mode = 'ShareUpdateExclusiveLock' AND pid <> pg_backend_pid()
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))

-- name: park
-- Promise: up to `limit` claimable tasks of the queue or type are parked, in the order of their priority and age, if it is
-- paused. Parameters: scope, name. Words: tasks_to_park, column (queue or type), limit, reach. Rows: (id).
-- Index: dibs_tasks_by_queue or dibs_tasks_by_type, or dibs_tasks_by_priority with `reach` entries.
-- Safe: the statement locks the row of the pause, which a pause and a resume write: a queue or type that is not paused
-- has no task that was parked for it after its resume. Tasks that other transactions have locked, most likely because they
-- are being claimed, are skipped: the holder of the row waits for no task.
WITH paused AS MATERIALIZED (
    SELECT name FROM dibs_pauses WHERE scope = :scope AND name = :name AND paused_at IS NOT NULL FOR NO KEY UPDATE
),
free AS MATERIALIZED (
    SELECT task.id FROM paused CROSS JOIN LATERAL ({{tasks_to_park}} LIMIT {{limit}} FOR UPDATE SKIP LOCKED) AS task
)
UPDATE dibs_tasks SET parked = true, type_parked = :scope = 'type' WHERE id = ANY (ARRAY(SELECT id FROM free)) RETURNING id

-- fragment: first_in_stream
-- The first claimable tasks of the queue or type.
SELECT id FROM dibs_tasks WHERE {{claimable}} AND {{column}} = paused.name ORDER BY priority DESC, {{age_in_stream}}

-- fragment: first_within_reach
-- The claimable tasks of the queue or type among the first `reach` of the store, for a store without the index of streams.
SELECT id FROM dibs_tasks
WHERE {{still_claimable}} AND id = ANY (ARRAY(
    SELECT id FROM (SELECT id, queue, type FROM dibs_tasks WHERE {{claimable}} {{any_priority}}
                    ORDER BY priority DESC, {{age_in_store}} LIMIT {{reach}}) AS task
    WHERE {{column}} = paused.name))
ORDER BY priority DESC, id

-- name: unpark
-- Promise: of the tasks that are parked for this pause, up to `limit` are claimable, in the order of their priority and
-- age, if the pause has ended. Those whose type, or queue, is paused as well stay parked for that other pause. A task
-- without a number gets one in a random order that has begun. Parameters: scope, name, by_type, other (the other scope).
-- Words: other_column (type or queue), limit. Rows: (id). Index: dibs_tasks_parked.
-- Safe: as `park`; but a claim that sweeps unparks tasks of several queues, possibly in one transaction, so it does not
-- wait for the row of a pause, nor for those of the other pauses (`still`): tasks whose other pause is being changed at
-- this moment stay as they are, for the next batch. A task is handed to another pause only while the row of that pause is
-- locked and says that it holds, so its resume finds the task.
WITH resumed AS MATERIALIZED (
    SELECT name FROM dibs_pauses WHERE scope = :scope AND name = :name AND paused_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
),
free AS MATERIALIZED (
    SELECT task.id, task.other FROM resumed CROSS JOIN LATERAL (
        SELECT id, {{other_column}} AS other FROM dibs_tasks
        WHERE {{is_parked}} AND type_parked = :by_type AND {{pause_name}} = resumed.name
        ORDER BY priority DESC, id LIMIT {{limit}} FOR UPDATE SKIP LOCKED
    ) AS task
),
still AS MATERIALIZED (
    SELECT name FROM dibs_pauses
    WHERE scope = :other AND paused_at IS NOT NULL AND name = ANY (ARRAY(SELECT DISTINCT other FROM free))
    FOR NO KEY UPDATE SKIP LOCKED
),
unclear AS MATERIALIZED (
    SELECT name FROM dibs_pauses
    WHERE scope = :other AND paused_at IS NOT NULL AND name = ANY (ARRAY(SELECT DISTINCT other FROM free))
      AND name <> ALL (ARRAY(SELECT name FROM still))
)
UPDATE dibs_tasks AS task
SET parked = task.{{other_column}} = ANY (ARRAY(SELECT name FROM still)),
    type_parked = CASE WHEN task.{{other_column}} = ANY (ARRAY(SELECT name FROM still)) THEN NOT task.type_parked
                       ELSE task.type_parked END,
    random_key = coalesce(task.random_key, {{random_place}}),
    weighted_key = coalesce(task.weighted_key, {{weighted_place}})
WHERE id = ANY (ARRAY(SELECT id FROM free WHERE other <> ALL (ARRAY(SELECT name FROM unclear)))) RETURNING id
