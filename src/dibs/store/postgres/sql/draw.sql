-- Promise: the next tasks of the line that have no number in its race draw one, as they would if they came now.
-- Parameters: the line, kind. Words: key, rate, limit. Rows: (drawn_to); none where others have done it.
-- Index: dibs_tasks_by_age, `limit` entries.
--
-- Once through the line is not enough here: transactions that had not seen the race when they enqueued may commit after
-- this has looked. When none is left of those that were running at the end of the first time (settles_after), the line
-- is gone through once more, and settled. What slips through even so (of a transaction that reads an old snapshot) draws
-- its number when it is the oldest of its line (advance_race.sql), or is claimed without one when nothing else is left.
--
-- Safe: whoever draws holds the race's lock, and waits for nothing while it does: tasks that others hold are left out,
-- most likely they are just being claimed.
WITH race AS MATERIALIZED (
    SELECT * FROM dibs_races
    WHERE queue = %(queue)s AND type = %(type)s AND attempts_left = %(attempts_left)s AND kind = %(kind)s
      AND drawn_to IS NOT NULL
    FOR UPDATE
),
chunk AS MATERIALIZED (
    SELECT task.id FROM race AS lines CROSS JOIN LATERAL (
        SELECT id FROM dibs_tasks WHERE {{in_line}} AND id > lines.drawn_to ORDER BY id LIMIT {{limit}}
    ) AS task
),
free AS MATERIALIZED (
    SELECT id FROM dibs_tasks
    WHERE id = ANY (ARRAY(SELECT id FROM chunk)) AND {{still: 'pending'}} AND {{key}} IS NULL
    FOR UPDATE SKIP LOCKED
),
drawn AS (
    UPDATE dibs_tasks AS task SET {{key}} = race.position - ln(1 - random()) / {{rate}}
    FROM race WHERE task.id = ANY (ARRAY(SELECT id FROM free))
),
reached AS MATERIALIZED (
    SELECT CASE WHEN count(*) = {{limit}} THEN max(id) END AS id FROM chunk
)
UPDATE dibs_races AS noted
SET drawn_to = reached.id,
    settles_after = CASE WHEN reached.id IS NOT NULL THEN noted.settles_after
                         WHEN noted.settles_after IS NOT NULL THEN pg_current_xact_id() END
FROM race, reached
WHERE noted.queue = race.queue AND noted.type = race.type AND noted.attempts_left = race.attempts_left
  AND noted.kind = race.kind
RETURNING noted.drawn_to
