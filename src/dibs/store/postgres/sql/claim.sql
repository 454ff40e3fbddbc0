-- Promise: the best candidates now belong to this worker, each under its next token; never more than `count`.
-- Parameters: queues, types, least, worker_id, incarnation, lease, ahead, request, now, by.
-- Words: candidates, order, reach, count.
-- Rows: how many candidates there were, the rank, history columns, task columns; one row of NULLs where none was
-- claimed, so that the caller can tell an empty queue from one whose first tasks are being claimed by others.
--
-- Safe: a candidate is only a guess. It is locked, if nobody else holds its lock, and looked at again under the lock
-- (`still` pending), so of two claims that guess the same task one gets it and the other takes its next guess.
-- The LIMIT stands over the locking, in a materialized CTE: no more rows are locked than claimed, and the UPDATE
-- cannot run the choice a second time. Candidates come out of their CTE in the order in which it sorted them.
-- Counts are words, not parameters: the planner must see how few rows are wanted. Where many ask together their number
-- changes with every claim, and each would be planned anew: the word is then rounded up, and `exactly` says how many. A
-- limit takes rows one by one, so no more of them are locked.
WITH RECURSIVE {{moment}},
{{lines}},
{{candidates}},
picked AS MATERIALIZED (
    SELECT id, rank FROM (
        SELECT locked.id, candidates.rank
        FROM candidates CROSS JOIN LATERAL (
            SELECT id FROM dibs_tasks WHERE id = candidates.id AND {{still: 'pending'}} FOR UPDATE SKIP LOCKED
        ) AS locked
        LIMIT {{count}}
    ) AS locked
    LIMIT %(exactly)s
),
{{claimed}}
SELECT (SELECT count(*) FROM candidates), picked.rank, changed.*
FROM (VALUES (1)) AS always LEFT JOIN (changed JOIN picked ON picked.id = changed.task_id) ON true
ORDER BY picked.rank
