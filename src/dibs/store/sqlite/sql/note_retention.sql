-- Promise: a change of a retention rule is recorded, with its author. Parameters: records, scope, name, kept, removed,
-- by, now. Rows: none. Safe: in the transaction of the change, after it.
INSERT INTO dibs_retention_changes (at, by, records, scope, name, kept, removed)
VALUES (:now, :by, :records, :scope, :name, :kept, :removed)
