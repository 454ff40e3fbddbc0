-- A condition of list.sql.
AND task.queue = %(queue)s
