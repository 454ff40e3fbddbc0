-- A condition of list.sql.
AND task.type = %(type)s
