-- Promise: the sample of this minute is stored, by the first who has one. Parameters: at, body.
-- Rows: (at); none for everybody else. Index: the primary key, where the second of two waits for the first.
INSERT INTO dibs_samples (at, body) VALUES (%(at)s, %(body)s)
ON CONFLICT (at) DO NOTHING
RETURNING at
