-- The condition that a task stands in a line. A fragment.
state = 'pending' AND queue = lines.queue AND type = lines.type AND attempts_left = lines.attempts_left
