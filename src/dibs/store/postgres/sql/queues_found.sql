-- The queues that hold pending tasks and are not paused, for a claim that names none. A fragment of lines.sql.
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
