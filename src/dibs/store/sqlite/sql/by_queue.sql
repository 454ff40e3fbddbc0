-- A condition of list.sql.
AND queue = :queue
