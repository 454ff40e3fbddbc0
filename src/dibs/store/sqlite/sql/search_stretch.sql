-- Promise: the tasks of a stretch of ids that match, newest first.
-- Parameters: lowest, highest, limit and those of the conditions.
-- Rows: lines of tasks (whole tasks, where the word task_line says so). Index: the primary key alone, so
-- that no condition leads away from the stretch.
SELECT {{task_line}} FROM dibs_tasks NOT INDEXED WHERE id BETWEEN :lowest AND :highest {{conditions}}
ORDER BY id DESC LIMIT {{limit}}
