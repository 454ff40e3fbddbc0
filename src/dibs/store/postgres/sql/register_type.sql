-- Promise: this version of the type, unless somebody took the number first (no row then).
-- Parameters: name, version, schema, defaults, now. Rows: all columns.
WITH {{moment}}
INSERT INTO dibs_task_types (name, version, schema, defaults, created_at)
SELECT %(name)s, %(version)s, %(schema)s, %(defaults)s, moment.now FROM moment
ON CONFLICT (name, version) DO NOTHING
RETURNING name, version, schema, defaults, created_at
