-- Promise: no rule is set for this scope and name. Parameters: records, scope, name. Rows: (records) of what was removed.
-- Safe: of two clients that remove the same rule, the second waits and finds nothing to remove.
DELETE FROM dibs_retention WHERE records = %(records)s AND scope = %(scope)s AND name = %(name)s RETURNING records
