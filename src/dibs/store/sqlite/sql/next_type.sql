-- Promise: the first type after this one that has a pending task in the queue. Rows: (type or NULL).
-- Index: one probe of dibs_tasks_by_age.
SELECT min(type) FROM dibs_tasks INDEXED BY dibs_tasks_by_age
WHERE state = 'pending' AND queue = :queue AND type > :after
