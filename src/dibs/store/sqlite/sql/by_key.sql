-- A condition of searches.
AND key = :key
