-- A condition of list.sql.
AND id < :cursor
