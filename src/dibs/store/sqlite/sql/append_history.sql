-- Promise: one line of history for a change, in its transaction. SQLite cannot update one table and insert into
-- another in one statement, so the store appends the rows that a change returned.
-- Parameters: the seven columns that begin every change's rows, then by and now.
INSERT INTO dibs_history (task_id, event, from_state, to_state, worker_id, token, detail, by, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
