-- A condition of list_workflows.sql.
AND workflow.state = :workflow_state
