-- The waiting lines that pass the filters: the pending tasks of a queue and type with the same number of attempts
-- left. Every filter is a choice of lines, and every order an index that begins with the line, so a claim reads only
-- what it takes. A fragment; parameters: queues, types (NULL for all), least.
-- Where a name is not given, the existing ones are found by jumping from each to the next: one probe of an index for
-- each, however many tasks there are. What was found is passed on in arrays, of which the planner expects ten rows:
-- it expects a million lines of three nested recursions, and a server with JIT then compiled for a second each claim.
found_queues (queue) AS (
    SELECT min(queue) FROM dibs_tasks WHERE state = 'pending' AND %(queues)s::text[] IS NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM dibs_tasks WHERE state = 'pending' AND queue > found.queue)
    FROM found_queues AS found WHERE found.queue IS NOT NULL
),
open_queues (queue) AS (
    SELECT wanted.queue
    FROM (SELECT DISTINCT unnest(%(queues)s::text[]) COLLATE "C" AS queue
          UNION ALL SELECT unnest(ARRAY(SELECT queue FROM found_queues WHERE queue IS NOT NULL))) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM dibs_queues WHERE name = wanted.queue AND paused_at IS NOT NULL)
),
found_types (queue, type) AS (
    SELECT queue, (SELECT min(type) FROM dibs_tasks WHERE state = 'pending' AND queue = open_queues.queue)
    FROM open_queues WHERE %(types)s::text[] IS NULL
    UNION ALL
    SELECT queue, (SELECT min(type) FROM dibs_tasks
                   WHERE state = 'pending' AND queue = found.queue AND type > found.type)
    FROM found_types AS found WHERE found.type IS NOT NULL
),
kinds (queue, type) AS (
    SELECT open_queues.queue, wanted.type
    FROM open_queues, (SELECT DISTINCT unnest(%(types)s::text[]) COLLATE "C" AS type) AS wanted
    UNION ALL
    SELECT found.queue, found.type
    FROM (SELECT array_agg(queue) AS queues, array_agg(type) AS types
          FROM found_types WHERE type IS NOT NULL) AS every,
         unnest(every.queues, every.types) AS found (queue, type)
),
found_lines (queue, type, attempts_left) AS (
    SELECT queue, type, (SELECT min(attempts_left) FROM dibs_tasks
                         WHERE state = 'pending' AND queue = kinds.queue AND type = kinds.type
                           AND attempts_left >= %(least)s::int)
    FROM kinds
    UNION ALL
    SELECT queue, type, (SELECT min(attempts_left) FROM dibs_tasks
                         WHERE state = 'pending' AND queue = found.queue AND type = found.type
                           AND attempts_left > found.attempts_left)
    FROM found_lines AS found WHERE found.attempts_left IS NOT NULL
),
lines AS MATERIALIZED (
    SELECT found.queue COLLATE "C" AS queue, found.type COLLATE "C" AS type, found.attempts_left
    FROM (SELECT array_agg(queue) AS queues, array_agg(type) AS types, array_agg(attempts_left) AS lefts
          FROM found_lines WHERE attempts_left IS NOT NULL) AS every,
         unnest(every.queues, every.types, every.lefts) AS found (queue, type, attempts_left)
)
