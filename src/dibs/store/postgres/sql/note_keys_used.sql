-- Promise: these keys were used now. Parameters: ids, now. Rows: none. Index: the primary key.
-- Safe: the rows are locked in one order, so that two servers that note the same keys cannot deadlock.
WITH {{moment}},
used AS MATERIALIZED (SELECT id FROM dibs_keys WHERE id = ANY(%(ids)s::text[]) ORDER BY id FOR UPDATE)
UPDATE dibs_keys SET last_used_at = (SELECT now FROM moment) WHERE id IN (SELECT id FROM used)
