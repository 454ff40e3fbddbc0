-- A condition of searches: created before.
AND task.created_at < %(until)s
