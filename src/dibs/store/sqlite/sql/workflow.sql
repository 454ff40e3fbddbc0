-- The columns of a workflow, in the order that `read_workflow` expects. A fragment; the table's alias is `workflow`.
workflow.id, workflow.name, workflow.state, workflow.steps, workflow.active, workflow.ended, workflow.failures,
workflow.created_at, workflow.queues, workflow.root_id, workflow.key, workflow.deadline, workflow.finished_at,
workflow.on_failure, workflow.stopping, workflow.error, workflow.step_of, workflow.finalizer_id,
workflow.finalization_token, workflow.finalization_by, workflow.finalization_until
