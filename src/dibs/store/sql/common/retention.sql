-- How long records are kept, and what is deleted after that.
-- Locks: those of the engine, see the file of the same theme there.

-- name: remove_retention
-- Promise: no rule is set for this scope and name. Parameters: records, scope, name. Rows: (records) of what was removed.
-- Safe: of two clients that remove the same rule, the second waits and finds nothing to remove.
DELETE FROM dibs_retention WHERE records = :records AND scope = :scope AND name = :name RETURNING records

-- name: retention
-- Promise: every retention rule that is set. Rows: (records, scope, name, kept, changed_at, changed_by), in any order.
SELECT records, scope, name, kept, changed_at, changed_by FROM dibs_retention

-- name: retention_changes
-- Promise: the newest changes of retention rules, newest first. Parameters: limit.
-- Rows: (id, at, by, records, scope, name, kept, removed). Index: the primary key.
SELECT id, at, by, records, scope, name, kept, removed FROM dibs_retention_changes ORDER BY id DESC LIMIT {{limit}}
