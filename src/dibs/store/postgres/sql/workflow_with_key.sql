-- Promise: the workflow that has this key and was started in exactly these queues. Parameters: key, queues (JSON).
-- Rows: (key_content, workflow columns). Index: dibs_workflows_key.
-- A statement of its own: it must see what another committed while `start_workflow` waited for it.
SELECT workflow.key_content, {{workflow}} FROM dibs_workflows AS workflow
WHERE workflow.key = %(key)s AND workflow.key_queues = %(queues)s
