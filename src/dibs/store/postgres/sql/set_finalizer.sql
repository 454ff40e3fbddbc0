-- Promise: this task is the workflow's finalizer. Parameters: id, task_id. Rows: none.
UPDATE dibs_workflows SET finalizer_id = %(task_id)s WHERE id = %(id)s
