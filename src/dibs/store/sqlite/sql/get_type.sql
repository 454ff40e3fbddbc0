-- Promise: this version of a task type, or its newest where version is NULL. Rows: all columns.
SELECT name, version, schema, defaults, created_at FROM dibs_task_types
WHERE name = :name AND (:version IS NULL OR version = :version) ORDER BY version DESC LIMIT 1
