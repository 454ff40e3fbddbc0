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
                           AND attempts_left >= %(least)s::int ORDER BY attempts_left LIMIT 1)
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
