-- Promise: every key, oldest first, also those that expired or were revoked. Parameters: now. Rows: key columns.
SELECT {{api_key}} FROM dibs_keys ORDER BY created_at, id
