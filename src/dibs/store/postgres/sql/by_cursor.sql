-- A condition of list.sql.
AND task.id < %(cursor)s
