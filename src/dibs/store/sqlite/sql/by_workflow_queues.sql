-- A condition of list_workflows.sql and by_only.sql: all of its tasks are in these queues.
AND NOT EXISTS (SELECT 1 FROM json_each(workflow.queues) AS used
                WHERE used.value NOT IN (SELECT value FROM json_each(:queues)))
