-- A condition of searches: created before.
AND created_at < :until
