-- Whether a sweep would find something to promote or to recover. A fragment; only looked at where its answer matters.
-- Indexes: dibs_tasks_due and dibs_tasks_leases, the first entry of each (and past steps that end with their lease).
overdue AS MATERIALIZED (
    SELECT coalesce((SELECT run_at FROM dibs_tasks WHERE state = 'scheduled' ORDER BY run_at LIMIT 1) <= moment.now, false)
        OR (SELECT lease_until FROM dibs_tasks WHERE state = 'claimed' AND lease_until <= moment.now {{that_go_on}}
            ORDER BY lease_until LIMIT 1) IS NOT NULL AS found
    FROM moment
)
