-- Promise: up to `limit` tasks whose lease ran out are taken back: an attempt is spent, and they are pending again,
-- or failed when it was their last, or cancelled when somebody asked for that. A task that was claimed ahead of its
-- turn is not known to have been started: no attempt is spent, only `dropped` counts it, and the detail says so.
-- Words: which (that_go_on or with_these_ids).
-- Parameters: limit, error (what the dead letter says), now. Rows: history columns, queue, type.
-- Index: dibs_tasks_leases. Safe: judged by the lease alone, never by who seems alive; the old token is dead as
-- soon as the state is no longer 'claimed', and the next claim issues another.
-- `claimed_at` is emptied with such a claim, as if it had not been; that also tells RETURNING, which sees the row as it
-- is now, which of the two it was. For the same reason the holder is still there; leave_tasks.sql, which follows, clears
-- the holder of those that are pending.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN attempts_left <= 1 AND NOT ahead THEN 'failed'
                 ELSE 'pending' END,
    attempts = attempts + 1 - ahead,
    error = CASE WHEN ahead THEN error ELSE :error END,
    finished_at = CASE WHEN cancel_requested OR (attempts_left <= 1 AND NOT ahead) THEN :now END,
    ready_at = :now,
    claimed_at = CASE WHEN NOT ahead THEN claimed_at END,
    lease_until = NULL,
    ahead = 0,
    dropped = dropped + ahead,
    {{fresh_keys: dibs_tasks.attempts_left - 1 + dibs_tasks.ahead}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_leases
             WHERE state = 'claimed' AND lease_until <= :now {{which}}
             ORDER BY lease_until LIMIT {{limit}})
RETURNING id, 'recovered', 'claimed', state, worker_id, token,
    CASE WHEN claimed_at IS NULL THEN '{"started":false}' END, queue, type
