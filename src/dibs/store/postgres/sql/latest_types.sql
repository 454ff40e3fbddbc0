-- Promise: the newest version of each task type. Rows: (name, version, schema, defaults).
SELECT name, version, schema, defaults FROM dibs_task_types AS known
WHERE version = (SELECT max(version) FROM dibs_task_types WHERE name = known.name)
