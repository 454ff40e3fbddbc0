-- Promise: this version of the type, unless somebody took the number first (no row then).
-- Parameters: name, version, schema, defaults, now. Rows: all columns.
INSERT INTO dibs_task_types (name, version, schema, defaults, created_at)
VALUES (:name, :version, :schema, :defaults, :now) ON CONFLICT (name, version) DO NOTHING
RETURNING name, version, schema, defaults, created_at
