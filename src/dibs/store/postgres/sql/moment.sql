-- The statement's time, once, from the database's clock; tests hand in their own. A fragment.
moment AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)
