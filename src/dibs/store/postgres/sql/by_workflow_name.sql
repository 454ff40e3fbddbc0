-- A condition of list_workflows.sql.
AND workflow.name = %(workflow_name)s
