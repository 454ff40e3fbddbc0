-- A condition of list.sql.
AND task.state = %(state)s
