-- Promise: the key with this id, if there is one. Parameters: id, now. Rows: key columns. Index: the primary key.
SELECT {{api_key}} FROM dibs_keys WHERE id = :id
