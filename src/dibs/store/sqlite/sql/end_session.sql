-- Promise: the session is over. Parameters: digest. Rows: (digest); none if there was none. Index: the primary key.
DELETE FROM dibs_sessions WHERE digest = :digest RETURNING digest
