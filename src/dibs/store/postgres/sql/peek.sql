-- Promise: the ids that a claim would take now, best first. Parameters and words as in claim.sql. Rows: (id).
WITH RECURSIVE {{lines}},
{{candidates}}
SELECT id FROM candidates ORDER BY rank LIMIT {{count}}
