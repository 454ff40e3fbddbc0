-- Promise: each lease ends `lease` from now, if its worker still holds the task under its token.
-- Parameters: said (a JSON array of objects with id, token, worker_id, lease), now.
-- Rows: (id, token, worker_id, lease_until, cancel_requested); none if refused.
-- Safe: as complete.sql; a claim that was recovered has another state or token, so it cannot be renewed back.
WITH {{moment}},
said AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(said)s::json) AS said (id bigint, token bigint, worker_id text, lease bigint)
),
{{in_turn}}
UPDATE dibs_tasks AS task SET lease_until = moment.now + said.lease
FROM said, in_turn, moment
WHERE task.id = in_turn.id AND task.id = said.id AND task.token = said.token AND task.worker_id = said.worker_id
  AND {{still: 'claimed'}}
RETURNING task.id, task.token, task.worker_id, task.lease_until, task.cancel_requested
