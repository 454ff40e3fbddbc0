-- Promise: nobody may use the key from now on; revoked again, it keeps the time of the first.
-- Parameters: id, now. Rows: key columns; none if there is no such key.
WITH {{moment}}
UPDATE dibs_keys SET revoked_at = coalesce(revoked_at, (SELECT now FROM moment)) WHERE id = %(id)s RETURNING {{api_key}}
