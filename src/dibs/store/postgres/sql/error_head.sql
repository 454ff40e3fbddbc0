-- The beginning of an error as JSON, its type and message, without the traceback: errors are grouped by it, and those of
-- a group found again, so both have to read the same. A fragment.
split_part(left(task.error, 400), '","traceback":', 1)
