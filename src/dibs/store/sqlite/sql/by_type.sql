-- A condition of list.sql.
AND type = :type
