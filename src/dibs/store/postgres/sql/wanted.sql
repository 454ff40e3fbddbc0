-- How many tasks to claim: none where it is time to sweep and something is overdue, which may come before all others.
-- A fragment of claim.sql; parameters: look, exactly.
CASE WHEN %(look)s AND (SELECT found FROM overdue) THEN 0 ELSE %(exactly)s END
