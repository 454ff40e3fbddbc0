-- Which tasks recover.sql takes: these. A fragment.
AND id = ANY(%(ids)s::bigint[])
