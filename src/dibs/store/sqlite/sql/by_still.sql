-- A condition of searches: the state, in a form that no partial index matches.
AND +state = :still
