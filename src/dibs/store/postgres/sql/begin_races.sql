-- Promise: the lines have a race of this kind; a new one stands at 0, and no task has drawn a number. Where there may be
-- tasks that came without a number, they are to be looked for now. Rows: none.
-- Parameters: said (a JSON array of the lines with kind). Safe: lines are written in one order, so two of these cannot
-- deadlock. Those who enqueue without having seen the new race have begun before this ended: see draw.sql.
INSERT INTO dibs_races AS race (queue, type, attempts_left, kind, position, drawn_to, settles_after)
SELECT line.queue, line.type, line.attempts_left, line.kind, 0, 0, pg_current_xact_id()
FROM json_to_recordset(%(said)s::json) AS line (queue text, type text, attempts_left int, kind text)
ORDER BY line.queue COLLATE "C", line.type COLLATE "C", line.attempts_left
ON CONFLICT (queue, type, attempts_left, kind) DO UPDATE SET drawn_to = 0, settles_after = NULL
WHERE race.drawn_to IS NULL AND race.settles_after < pg_snapshot_xmin(pg_current_snapshot())
