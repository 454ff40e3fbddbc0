-- Promise: the sample of this minute is stored, by the first who has one. Parameters: at, body.
-- Rows: (at); none for everybody else. Index: the primary key.
INSERT INTO dibs_samples (at, body) VALUES (:at, :body)
ON CONFLICT (at) DO NOTHING
RETURNING at
