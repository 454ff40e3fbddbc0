-- Promise: the first queue after this one that has a pending task. Rows: (queue or NULL).
-- Index: one probe of dibs_tasks_by_age, however many tasks a queue holds.
SELECT min(queue) FROM dibs_tasks INDEXED BY dibs_tasks_by_age WHERE state = 'pending' AND queue > :after
