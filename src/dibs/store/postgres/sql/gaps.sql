-- Promise: the ids that are missing between the entries after this one, up to `limit` entries: they were rolled back,
-- pruned, or are still to be committed. Parameters: after, limit. Rows: (first, last), in order.
-- Index: the primary key of the history alone.
SELECT before + 1, id - 1
FROM (SELECT id, lag(id, 1, %(after)s::bigint) OVER (ORDER BY id) AS before
      FROM (SELECT id FROM dibs_history WHERE id > %(after)s ORDER BY id LIMIT {{limit}}) AS seen) AS pair
WHERE id > before + 1 ORDER BY id
