-- Promise: what the task came to. Parameters: id. Rows: (result, error).
SELECT result, error FROM dibs_tasks WHERE id = %(id)s
