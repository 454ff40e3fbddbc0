-- Promise: the rule is stored; one with the same scope and name is changed to it. Nothing changes where it is the same.
-- Parameters: records, scope, name, kept, by, now. Rows: (records) of what changed; none where nothing did.
INSERT INTO dibs_retention (records, scope, name, kept, changed_at, changed_by)
VALUES (:records, :scope, :name, :kept, :now, :by)
ON CONFLICT (records, scope, name) DO UPDATE
SET kept = excluded.kept, changed_at = excluded.changed_at, changed_by = excluded.changed_by
WHERE kept IS NOT excluded.kept
RETURNING records
