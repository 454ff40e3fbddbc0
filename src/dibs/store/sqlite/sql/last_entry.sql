-- Promise: the id of the newest entry of the history, 0 where there is none. Rows: (id). Index: the primary key's end.
SELECT coalesce(max(id), 0) FROM dibs_history
