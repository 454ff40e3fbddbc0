-- Only where there are several lines. A fragment of candidates_ordered.sql.
WHERE (SELECT count(*) FROM lines) > 1
