-- Promise: the last workflows that ended in this state, up to a limit. Parameters: state, limit. Rows: (id).
-- Index: dibs_workflows_finished, in its order: without one PostgreSQL reads all workflows for a state that few are in.
SELECT id FROM dibs_workflows WHERE state = %(state)s AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT {{limit}}
