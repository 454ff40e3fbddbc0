-- The types of the pending tasks in each open queue, for a claim that names none; found as in queues_found.sql.
-- A fragment of lines.sql.
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
