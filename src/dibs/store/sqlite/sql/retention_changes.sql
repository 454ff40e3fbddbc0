-- Promise: the newest changes of retention rules, newest first. Parameters: limit.
-- Rows: (id, at, by, records, scope, name, kept, removed). Index: the primary key.
SELECT id, at, by, records, scope, name, kept, removed FROM dibs_retention_changes ORDER BY id DESC LIMIT {{limit}}
