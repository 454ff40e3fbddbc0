-- The types that a claim names, in each open queue. A fragment of lines.sql; parameters: types.
kinds (queue, type) AS (
    SELECT open_queues.queue, wanted.type FROM open_queues, unnest(ARRAY(SELECT unnest(%(types)s::text[]))) AS wanted (type)
)
