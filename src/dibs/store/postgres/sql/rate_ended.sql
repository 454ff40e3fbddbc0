-- The condition that the window of a rate is over. A fragment of take_permits.sql; `excluded` is the window that would
-- begin now.
(rate.ends_at <= excluded.ends_at - %(period)s::bigint OR rate.ends_at > excluded.ends_at + 60000000)
