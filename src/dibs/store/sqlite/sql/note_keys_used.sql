-- Promise: these keys were used now. Parameters: ids, now. Rows: none. Index: the primary key.
UPDATE dibs_keys SET last_used_at = :now WHERE id IN (SELECT value FROM json_each(:ids))
