-- Promise: the schedule is gone; the tasks that it enqueued stay.
-- Parameters: name. Rows: (name), none if there was none.
DELETE FROM dibs_schedules WHERE name = :name RETURNING name
