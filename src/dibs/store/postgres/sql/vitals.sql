-- Promise: how many bytes the tables of dibs take with their indexes, and for how many seconds the oldest transaction of
-- this database has been open, prepared ones included; of other users' only with the role pg_read_all_stats.
-- Rows: (bytes, seconds).
SELECT
    (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
     WHERE relkind = 'r' AND starts_with(relname::text, 'dibs_') AND pg_table_is_visible(oid)),
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(begun)), 0)::float8
     FROM (SELECT xact_start AS begun FROM pg_stat_activity
           WHERE datname = current_database() AND backend_type = 'client backend'
           UNION ALL
           SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) AS open_ones)
