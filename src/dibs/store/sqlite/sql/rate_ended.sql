-- The condition that the window of a rate is over. A fragment of take_permits.sql.
(rate.ends_at <= :now OR rate.ends_at > :now + :period + 60000000)
