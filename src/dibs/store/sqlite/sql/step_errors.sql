-- Promise: what went wrong last with these tasks, the beginning of it. Parameters: ids. Rows: (id, text). Index: the primary key.
SELECT id, substr(json_extract(error, '$.type') || ': ' || json_extract(error, '$.message'), 1, 200)
FROM dibs_tasks WHERE id IN (SELECT value FROM json_each(:ids)) AND error IS NOT NULL
