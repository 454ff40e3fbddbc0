-- A condition of list_workflows.sql.
AND workflow.id >= :workflow_floor
