-- Promise: the workflow. Parameters: id. Rows: workflow columns; none if there is none.
SELECT {{workflow}} FROM dibs_workflows AS workflow WHERE workflow.id = %(id)s
