-- Promise: the lines that a claim in a race must let draw their numbers before it can claim.
-- Parameters: queues, types, least, kind. Rows: (queue, type, attempts_left).
WITH RECURSIVE {{lines}},
{{undrawn}}
SELECT * FROM undrawn
