-- A condition of list.sql.
AND state = :state
