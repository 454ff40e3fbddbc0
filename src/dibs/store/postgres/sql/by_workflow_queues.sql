-- A condition of list_workflows.sql and by_only.sql: all of its tasks are in these queues.
AND NOT EXISTS (SELECT FROM json_array_elements_text(workflow.queues::json) AS used (queue)
                WHERE used.queue <> ALL (%(queues)s::text[]))
