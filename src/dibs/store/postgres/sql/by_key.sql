-- A condition of searches.
AND task.key = %(key)s
