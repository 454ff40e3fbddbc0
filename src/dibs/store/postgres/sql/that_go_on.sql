-- Which tasks recover.sql takes: all but steps that would end with it, which their workflow must learn of in the same
-- transaction (see lost_steps.sql). A fragment.
AND (workflow_id IS NULL OR NOT (cancel_requested OR (attempts_left <= 1 AND NOT ahead)))
