-- API keys, their rate limits, and browser sessions.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: take_permits
-- Promise: the key gets as many of the permits it wants as its window has left; never more in a window than the limit,
-- however many servers ask. Parameters: key_id, requests, period, wanted, now. Rows: (granted, until the window ends).
-- A window begins with the first request after the last one ended. One that ends later than any could (the clock was
-- set back) counts as ended; a minute of grace keeps that apart from a statement that waited for its row while another
-- began a window, and so knows an older time than the row.
-- Safe: one statement. The second of two waits for the first one's row and reads it as that one left it; every right
-- side reads the row as it was before. `granted` is a column because RETURNING sees it only as it is now.
WITH {{moment}}
INSERT INTO dibs_rates AS rate (key_id, ends_at, used, granted)
SELECT :key_id, moment.now + :period::bigint, least(:wanted::bigint, :requests::bigint),
       least(:wanted::bigint, :requests::bigint)
FROM moment
ON CONFLICT (key_id) DO UPDATE SET
    ends_at = CASE WHEN {{rate_ended}} THEN excluded.ends_at ELSE rate.ends_at END,
    used = CASE WHEN {{rate_ended}} THEN excluded.used
                ELSE rate.used + greatest(0, least(:wanted::bigint, :requests::bigint - rate.used)) END,
    granted = CASE WHEN {{rate_ended}} THEN excluded.granted
                   ELSE greatest(0, least(:wanted::bigint, :requests::bigint - rate.used)) END
RETURNING granted, ends_at - (SELECT now FROM moment)

-- fragment: rate_ended
-- The condition that the window of a rate is over. Used by `take_permits`; `excluded` is the window that would
-- begin now.
(rate.ends_at <= excluded.ends_at - :period::bigint OR rate.ends_at > excluded.ends_at + 60000000)
