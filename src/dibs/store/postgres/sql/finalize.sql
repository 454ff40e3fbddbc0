-- Finalization: the last decision about a workflow, made by one processor at a time.
-- Locks: the roots of workflow trees in the order of their ids (`lock_workflows`), then tasks in the order of their ids
-- (`in_turn`, `lock_tasks`). A statement that takes any matching rows skips the locked ones (SKIP LOCKED).

-- name: claim_finalization
-- Promise: see dibs_claim_finalization in migrations/0001_initial.sql: a function, so that programs in other languages
-- can claim too.
-- Parameters: id, processor, lease, now. Rows: (claimed, already_claimed_by, state, message, reason, token,
-- lease_until).
SELECT claimed, already_claimed_by, state, message, reason, token, lease_until
FROM dibs_claim_finalization(:id::bigint, :processor::text, :lease::float8 / 1000000, :now::bigint)

-- name: renew_finalization
-- Promise: the claim is extended, if this processor has it under this token; see dibs_renew_finalization in
-- migrations/0001_initial.sql: a function, so that programs in other languages can renew as well.
-- Parameters: id, processor, token, lease, now.
-- Rows: (claimed, already_claimed_by, state, message, reason, token, lease_until).
SELECT claimed, already_claimed_by, state, message, reason, token, lease_until
FROM dibs_renew_finalization(:id::bigint, :processor::text, :token::bigint, :lease::float8 / 1000000,
                             :now::bigint)

-- name: release_finalization
-- Promise: the claim is given up, if this processor has it under this token; see dibs_release_finalization in
-- migrations/0001_initial.sql: a function, so that programs in other languages can release as well.
-- Parameters: id, processor, token. Rows: (released); none if it has not.
SELECT 1 FROM dibs_release_finalization(:id::bigint, :processor::text, :token::bigint) AS released WHERE released

-- name: execution_context
-- Promise: how many steps of the workflow are in each state, and the action that follows from that. Parameters: id.
-- Rows: (id, state, steps, pending, scheduled, claimed, blocked, completed, failed, cancelled, passed, failures,
-- completion percentage, execution status, recommended action); none if there is no such workflow.
-- A function, so that other languages can ask as well (see migrations/0001_initial.sql).
SELECT * FROM dibs_execution_context(:id::bigint)

-- name: finalize
-- Promise: the holder of the finalization acts on the state of the workflow's steps, or nothing changes; see
-- dibs_finalize_at in migrations/0001_initial.sql: a function, so that programs in other languages can finalize as
-- well.
-- Parameters: id, processor, token, by, now. Rows: (reason, state, execution status, action, due).
-- Safe: the function locks the root of the workflow's tree, and the workflow, before it reads or checks anything.
SELECT reason, state, execution_status, action, due
FROM dibs_finalize_at(:id::bigint, :processor::text, :token::bigint, :by::text, :now::bigint)
