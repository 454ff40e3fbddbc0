-- The beginning of an error as JSON, its type and message first: errors are grouped by it, and those of a group found
-- again, so both have to read the same. A fragment.
substr(error, 1, 400)
