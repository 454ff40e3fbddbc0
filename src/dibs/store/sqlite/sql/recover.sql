-- Promise: up to `limit` tasks whose lease ran out are taken back: an attempt is spent, and they are pending again,
-- or failed when it was their last, or cancelled when somebody asked for that.
-- Parameters: limit, error (what the dead letter says), now. Rows: history columns.
-- Index: dibs_tasks_leases. Safe: judged by the lease alone, never by who seems alive; the old token is dead as
-- soon as the state is no longer 'claimed', and the next claim issues another.
UPDATE dibs_tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN attempts_left <= 1 THEN 'failed' ELSE 'pending' END,
    attempts = attempts + 1,
    error = :error,
    finished_at = CASE WHEN cancel_requested OR attempts_left <= 1 THEN :now END,
    ready_at = :now,
    lease_until = NULL,
    {{fresh_keys: dibs_tasks.attempts_left - 1}}
WHERE id IN (SELECT id FROM dibs_tasks INDEXED BY dibs_tasks_leases
             WHERE state = 'claimed' AND lease_until <= :now ORDER BY lease_until LIMIT {{limit}})
RETURNING id, 'recovered', 'claimed', state, worker_id, token, NULL
