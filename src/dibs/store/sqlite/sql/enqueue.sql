-- Promise: new tasks. Words: rows (one of VALUES for each task). Parameters: the columns of each, in this order. Rows: none.
-- Safe: the write lock is held from `last_id` to the commit, so the ids are free and no key can appear in between.
-- Where a line races, `draw_places` follows.
INSERT INTO dibs_tasks (
    id, type, type_version, queue, state, priority, params, max_attempts, timeout, backoff_base, backoff_cap,
    created_at, run_at, ready_at, key, key_content, trace
) VALUES {{rows}}
