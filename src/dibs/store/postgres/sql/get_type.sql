-- Promise: this version of a task type, or its newest where version is NULL. Rows: all columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types
WHERE name = %(name)s AND (%(version)s::int IS NULL OR version = %(version)s) ORDER BY version DESC LIMIT 1
