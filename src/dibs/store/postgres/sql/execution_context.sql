-- Promise: how the workflow's steps stand, and what follows from that. Parameters: id.
-- Rows: (id, state, steps, pending, scheduled, claimed, blocked, completed, failed, cancelled, passed, failures,
-- completion percentage, execution status, recommended action); none if there is no such workflow.
-- A function, so that other languages can ask as well (see migrations/0006_workflows.sql).
SELECT * FROM dibs_execution_context(%(id)s::bigint)
