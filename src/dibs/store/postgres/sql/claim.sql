-- Promise: the best candidates now belong to this worker, each under its next token; never more than `count`.
-- Parameters: queues, types, least, worker_id, incarnation, lease, ahead, request, look, exactly, now, by.
-- Words: open_queues, kinds, candidates, alone (from_one_line, or nothing), order, reach, count.
-- Rows: how many candidates there were, whether something is overdue, the rank, history columns, task columns; one row of
-- NULLs where none was claimed, so that the caller can tell an empty queue from one whose first tasks are being claimed by
-- others. Whether something is overdue is only asked where it is time to sweep (`look`; then nothing is claimed) or where
-- there is nothing to claim.
--
-- Safe: a candidate is only a guess. It is locked, if nobody else holds its lock, and looked at again under the lock
-- (`still` pending), so of two claims that guess the same task one gets it and the other takes its next guess.
-- The LIMITs stand over the locking, in a materialized CTE: no more rows are locked than claimed, and the UPDATE
-- cannot run the choice a second time. Candidates come out of their CTE in the order in which it sorted them.
-- Where there is a single line nothing needs to be merged, and its tasks are locked as they are read (from_one_line.sql).
-- Counts are words, not parameters: the planner must see how few rows are wanted. The word is rounded up, since each
-- number would be planned anew, and `exactly` says how many. A limit takes rows one by one, so no more are locked.
WITH RECURSIVE {{moment}},
{{overdue}},
{{lines}},
{{candidates}},
picked AS MATERIALIZED (
    {{alone}}
    (SELECT id, rank FROM (
        SELECT locked.id, candidates.rank
        FROM candidates CROSS JOIN LATERAL (
            SELECT id FROM dibs_tasks WHERE id = candidates.id AND {{still: 'pending'}} FOR UPDATE SKIP LOCKED
        ) AS locked
        LIMIT {{count}}
    ) AS locked
    LIMIT {{wanted}})
),
{{claimed}}
SELECT (SELECT count(*) FROM candidates),
    CASE WHEN %(look)s OR NOT EXISTS (SELECT FROM picked) THEN (SELECT found FROM overdue) ELSE false END,
    picked.rank, changed.*
FROM (VALUES (1)) AS always LEFT JOIN (changed JOIN picked ON picked.id = changed.task_id) ON true
ORDER BY picked.rank
