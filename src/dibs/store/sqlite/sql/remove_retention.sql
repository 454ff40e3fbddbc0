-- Promise: no rule is set for this scope and name. Parameters: records, scope, name. Rows: (records) of what was removed.
DELETE FROM dibs_retention WHERE records = :records AND scope = :scope AND name = :name RETURNING records
