-- API keys, their rate limits, and browser sessions.
-- Locks: one transaction writes at a time. It holds the lock of the file from its first statement to its commit.

-- name: take_permits
-- Promise: the key gets as many of the permits it wants as its window has left; never more in a window than the limit,
-- however many servers ask. Parameters: key_id, requests, period, wanted, now. Rows: (granted, until the window ends).
-- A window begins with the first request after the end of the previous window. A window whose end is too far in the
-- future (the clock was set back) counts as ended; a minute of tolerance allows small corrections of the clock.
-- Safe: one statement under the write lock. Every right side reads the row as it was; `granted` is a column because
-- RETURNING sees it only as it is now.
INSERT INTO dibs_rates AS rate (key_id, ends_at, used, granted)
VALUES (:key_id, :now + :period, min(:wanted, :requests), min(:wanted, :requests))
ON CONFLICT (key_id) DO UPDATE SET
    ends_at = CASE WHEN {{rate_ended}} THEN excluded.ends_at ELSE rate.ends_at END,
    used = CASE WHEN {{rate_ended}} THEN excluded.used
                ELSE rate.used + max(0, min(:wanted, :requests - rate.used)) END,
    granted = CASE WHEN {{rate_ended}} THEN excluded.granted ELSE max(0, min(:wanted, :requests - rate.used)) END
RETURNING granted, ends_at - :now

-- fragment: rate_ended
-- The condition that the window of a rate limit has ended. Used by `take_permits`.
(rate.ends_at <= :now OR rate.ends_at > :now + :period + 60000000)
