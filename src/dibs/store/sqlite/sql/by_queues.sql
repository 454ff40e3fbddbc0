-- A condition of list.sql and of the statistics.
AND queue IN (SELECT value FROM json_each(:queues))
