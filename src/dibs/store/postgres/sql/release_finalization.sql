-- Promise: the claim is given up, if this processor has it under this token; see dibs_release_finalization in
-- migrations/0010_finalization_tokens.sql: a function, so that programs in other languages can release as well.
-- Parameters: id, processor, token. Rows: (released); none if it has not.
SELECT 1 FROM dibs_release_finalization(%(id)s::bigint, %(processor)s::text, %(token)s::bigint) AS released WHERE released
