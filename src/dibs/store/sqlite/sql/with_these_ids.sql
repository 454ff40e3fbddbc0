-- Which tasks recover.sql takes: these. A fragment.
AND id IN (SELECT value FROM json_each(:ids))
