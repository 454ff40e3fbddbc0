-- Promise: the claim is extended, if this processor has it under this token; see dibs_renew_finalization in
-- migrations/0010_finalization_tokens.sql: a function, so that programs in other languages can renew as well.
-- Parameters: id, processor, token, lease, now.
-- Rows: (claimed, already_claimed_by, state, message, reason, token, lease_until).
SELECT claimed, already_claimed_by, state, message, reason, token, lease_until
FROM dibs_renew_finalization(%(id)s::bigint, %(processor)s::text, %(token)s::bigint, %(lease)s::float8 / 1000000,
                             %(now)s::bigint)
