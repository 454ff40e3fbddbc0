-- The first picked task is for the first worker in the list, and so on. A fragment of claimed.sql; parameters: workers,
-- incarnations. Both arrays of ids come out of the same materialized CTE, in its order.
worker_id = (%(workers)s::text[])[array_position(ARRAY(SELECT id FROM picked), task.id)],
incarnation = (%(incarnations)s::text[])[array_position(ARRAY(SELECT id FROM picked), task.id)]
