-- Promise: the race knows how far its numbers are drawn; to the end, where fewer than `count` tasks came after.
-- Parameters: the line, kind, drawn_to, last (count - 1). Rows: (drawn_to). Index: dibs_tasks_by_age.
UPDATE dibs_races SET drawn_to = (
    SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_by_age
    WHERE state = 'pending' AND queue = :queue AND type = :type AND attempts_left = :attempts_left AND id > :drawn_to
    ORDER BY id LIMIT 1 OFFSET :last)
WHERE queue = :queue AND type = :type AND attempts_left = :attempts_left AND kind = :kind
RETURNING drawn_to
