-- A condition of list_workflows.sql.
AND workflow.id = ANY(%(ids)s::bigint[])
