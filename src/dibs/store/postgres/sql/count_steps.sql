-- Promise: each workflow has that many more steps, active, ended and failed ones. One that runs and has nothing active any
-- more waits for its finalization from now on; one that has something active does not, nor a sub-workflow that has not begun.
-- Parameters: of each id, steps, active, ended, failures; now. Rows: (id) of those whose finalization is due.
-- Safe: the root is held, so of the steps that end at the same moment one is the last, and its transaction sees that.
WITH {{moment}}
UPDATE dibs_workflows AS workflow
SET steps = workflow.steps + more.steps, active = workflow.active + more.active, ended = workflow.ended + more.ended,
    failures = workflow.failures + more.failures,
    due_at = CASE WHEN workflow.active + more.active = 0 AND workflow.state = 'running'
                   AND (workflow.step_of IS NULL OR EXISTS (
                       SELECT FROM dibs_tasks AS gate WHERE gate.id = workflow.step_of AND (gate.state || '') = 'claimed'))
                  THEN moment.now END
FROM json_to_recordset(%(said)s::json) AS more (id bigint, steps int, active int, ended int, failures int), moment
WHERE workflow.id = more.id
RETURNING workflow.id, workflow.due_at
