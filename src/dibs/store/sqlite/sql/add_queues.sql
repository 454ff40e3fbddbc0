-- Promise: the workflow's tasks are in these queues, and so are those of its root. Parameters: id, queues. Rows: none.
UPDATE dibs_workflows SET queues = :queues WHERE id = :id
