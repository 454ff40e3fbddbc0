-- A condition of searches: created then or later.
AND created_at >= :since
