-- Promise: all versions of all task types. Rows: all columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types ORDER BY name, version DESC
