-- Promise: see dibs_claim_finalization in migrations/0010_finalization_tokens.sql: a function, so that programs in other
-- languages can claim as well.
-- Parameters: id, processor, lease, now. Rows: (claimed, already_claimed_by, state, message, reason, token, lease_until).
SELECT claimed, already_claimed_by, state, message, reason, token, lease_until
FROM dibs_claim_finalization(%(id)s::bigint, %(processor)s::text, %(lease)s::float8 / 1000000, %(now)s::bigint)
