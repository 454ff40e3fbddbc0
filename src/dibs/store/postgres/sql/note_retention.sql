-- Promise: a change of a retention rule is recorded, with its author. Parameters: records, scope, name, kept, removed,
-- by, now. Rows: none. Safe: in the transaction of the change, after it: while the rule's row is locked.
WITH {{moment}}
INSERT INTO dibs_retention_changes (at, by, records, scope, name, kept, removed)
SELECT moment.now, %(by)s::text, %(records)s, %(scope)s, %(name)s, %(kept)s::bigint, %(removed)s::boolean FROM moment
