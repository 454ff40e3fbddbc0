-- Promise: the rule is stored; one with the same scope and name is changed to it. Nothing changes where it is the same.
-- Parameters: records, scope, name, kept, by, now. Rows: (records) of what changed; none where nothing did.
-- Safe: two clients that set the same rule wait for each other at its row, and the second sees what the first stored.
WITH {{moment}}
INSERT INTO dibs_retention AS rule (records, scope, name, kept, changed_at, changed_by)
SELECT %(records)s, %(scope)s, %(name)s, %(kept)s::bigint, moment.now, %(by)s::text FROM moment
ON CONFLICT (records, scope, name) DO UPDATE
SET kept = excluded.kept, changed_at = excluded.changed_at, changed_by = excluded.changed_by
WHERE rule.kept IS DISTINCT FROM excluded.kept
RETURNING records
