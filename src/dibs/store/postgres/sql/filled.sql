-- Promise: the ids within these gaps that can be seen by now, up to `limit`. Parameters: firsts, lasts, limit.
-- Rows: (id), in order. Index: the primary key of the history, once for each gap.
SELECT past.id
FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS gap (first, last)
CROSS JOIN LATERAL (SELECT id FROM dibs_history WHERE id BETWEEN gap.first AND gap.last) AS past
ORDER BY past.id LIMIT {{limit}}
