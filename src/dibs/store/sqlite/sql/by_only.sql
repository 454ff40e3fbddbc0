-- A condition of dead_steps.sql: all tasks of its workflow, and of those that it is a part of, are in these queues.
AND EXISTS (SELECT 1 FROM dibs_workflows AS workflow
            WHERE workflow.id = (SELECT coalesce(own.root_id, own.id) FROM dibs_workflows AS own
                                 WHERE own.id = step.workflow_id)
            {{by_workflow_queues}})
