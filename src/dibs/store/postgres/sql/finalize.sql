-- Promise: the holder of the finalization acts on how the workflow stands, or nothing changes; see dibs_finalize_at in
-- migrations/0010_finalization_tokens.sql: a function, so that programs in other languages can finalize as well.
-- Parameters: id, processor, token, by, now. Rows: (reason, state, execution status, action, due).
-- Safe: the function locks the root of the workflow's tree, and the workflow, before it reads or checks anything.
SELECT reason, state, execution_status, action, due
FROM dibs_finalize_at(%(id)s::bigint, %(processor)s::text, %(token)s::bigint, %(by)s::text, %(now)s::bigint)
