-- Promise: nobody may use the key from now on; revoked again, it keeps the time of the first.
-- Parameters: id, now. Rows: key columns; none if there is no such key.
UPDATE dibs_keys SET revoked_at = coalesce(revoked_at, :now) WHERE id = :id RETURNING {{api_key}}
