-- Two indexes instead of five for most tasks: races are run only where somebody claims at random or by weight, and the
-- three orders by priority share one index (see sql/pick_level.sql).
-- compatible: 8
--
-- Only the tasks of lines that race have numbers and stand in the two indexes of the races. drawn_to: the tasks of the
-- line with higher ids may still lack a number; NULL: all have one (see sql/draw.sql). Code of before claims by the
-- indexes as they were, and cannot find them.
-- The numbers that tasks have already are as good as new ones: where there is no race yet it begins at 0, and they were
-- drawn from there.

DROP INDEX dibs_tasks_by_priority_lifo;
DROP INDEX dibs_tasks_by_random;
DROP INDEX dibs_tasks_by_weight;
CREATE INDEX dibs_tasks_by_random ON dibs_tasks (queue, type, attempts_left, random_key)
    WHERE state = 'pending' AND random_key IS NOT NULL;
CREATE INDEX dibs_tasks_by_weight ON dibs_tasks (queue, type, attempts_left, weighted_key)
    WHERE state = 'pending' AND weighted_key IS NOT NULL;

ALTER TABLE dibs_races ADD COLUMN drawn_to INTEGER;
