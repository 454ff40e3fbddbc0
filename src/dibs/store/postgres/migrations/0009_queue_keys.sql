-- Queues as tenants, and a dead letter that can be emptied.
--
-- An idempotency key belongs to a queue: two queues can have the same key for different tasks. The key of a workflow
-- belongs to the set of queues that its graph named when it was started (key_queues). `key` is the first column of the
-- index, so that a search for a key in all queues needs no other one.
-- A workflow without tasks is in the default queue, no longer in none.
-- A worker's record belongs to the queue limit of the API key that wrote it (limited_to: JSON, empty for no limit), so
-- that a worker of the same name elsewhere neither overwrites nor replaces it.
-- set_aside says why a failed task is not in the dead letter: its workflow went on without it ('ignored'), or somebody
-- discarded it ('discarded'). dibs_tasks_dead holds the dead letter and nothing else.
-- Older code inserts keys by the index that is dropped here, and does not know set_aside; so it cannot use this schema.

DROP INDEX dibs_tasks_key;
CREATE UNIQUE INDEX dibs_tasks_key ON dibs_tasks (key, queue) WHERE key IS NOT NULL;

ALTER TABLE dibs_workflows ADD COLUMN key_queues text COLLATE "C";
UPDATE dibs_workflows SET queues = '["default"]' WHERE queues = '[]';
UPDATE dibs_workflows SET key_queues = queues WHERE key IS NOT NULL;
DROP INDEX dibs_workflows_key;
CREATE UNIQUE INDEX dibs_workflows_key ON dibs_workflows (key, key_queues) WHERE key IS NOT NULL;

ALTER TABLE dibs_workers ADD COLUMN limited_to text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE dibs_workers DROP CONSTRAINT dibs_workers_pkey;
ALTER TABLE dibs_workers ADD PRIMARY KEY (id, incarnation, limited_to);

ALTER TABLE dibs_tasks ADD COLUMN set_aside text;
UPDATE dibs_tasks AS task SET set_aside = 'ignored'
FROM dibs_steps AS step WHERE step.task_id = task.id AND step.passed AND task.state = 'failed';
CREATE INDEX dibs_tasks_dead ON dibs_tasks (state, finished_at) WHERE state = 'failed' AND set_aside IS NULL;
