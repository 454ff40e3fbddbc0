-- A condition of searches: created then or later.
AND task.created_at >= %(since)s
