-- A condition of list_workflows.sql.
AND workflow.id IN (SELECT value FROM json_each(:ids))
