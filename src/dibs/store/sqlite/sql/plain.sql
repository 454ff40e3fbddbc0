-- Tasks that are no steps: whoever ends a step must hold its workflow. A fragment of the statements that end tasks.
AND workflow_id IS NULL
