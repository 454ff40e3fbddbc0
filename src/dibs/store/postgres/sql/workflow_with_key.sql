-- Promise: the workflow that has this key. Parameters: key. Rows: (key_content, workflow columns).
-- A statement of its own: it must see what another committed while `start_workflow` waited for it.
SELECT workflow.key_content, {{workflow}} FROM dibs_workflows AS workflow WHERE workflow.key = %(key)s
