-- The queues that a claim names, without those that are paused. A fragment of lines.sql; parameters: queues.
open_queues (queue) AS (
    SELECT wanted.queue
    FROM unnest(ARRAY(SELECT unnest(%(queues)s::text[]))) AS wanted (queue)
    WHERE NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = wanted.queue COLLATE "C" AND paused_at IS NOT NULL)
)
