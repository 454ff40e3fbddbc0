-- Promise: each workflow has that many more steps, active, ended and failed ones. One that runs and has nothing active any
-- more waits for its finalization from now on; one that has something active does not, nor a sub-workflow that has not begun.
-- Parameters: of each id, steps, active, ended, failures; now. Rows: (id) of those whose finalization is due.
-- Safe: the root is held, so of the steps that end at the same moment one is the last, and its transaction sees that.
UPDATE dibs_workflows
SET steps = steps + :steps, active = active + :active, ended = ended + :ended, failures = failures + :failures,
    due_at = CASE WHEN active + :active = 0 AND state = 'running'
                   AND (step_of IS NULL OR EXISTS (
                       SELECT 1 FROM dibs_tasks AS gate WHERE gate.id = step_of AND +gate.state = 'claimed'))
                  THEN :now END
WHERE id = :id
RETURNING id, due_at
