-- Promise: the next tasks of the line that have no number in its race draw one, as they would if they came now.
-- Parameters: the line, position, drawn_to, count. Words: key, rate. Rows: none.
-- Index: dibs_tasks_by_age, `count` entries. Safe: nobody enqueues between the look and the commit, and who comes
-- later finds the race: once through the line is enough.
UPDATE dibs_tasks SET {{key}} = :position + dibs_exponential() / {{rate}}
WHERE {{key}} IS NULL AND id IN (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND id > :drawn_to
    ORDER BY id LIMIT :count)
