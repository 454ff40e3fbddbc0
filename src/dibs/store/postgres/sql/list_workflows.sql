-- Promise: a page of workflows, newest first, without sub-workflows. Parameters: limit and those of the conditions.
-- Rows: workflow columns.
SELECT {{workflow}} FROM dibs_workflows AS workflow
WHERE workflow.step_of IS NULL {{conditions}}
ORDER BY workflow.id DESC LIMIT {{limit}}
