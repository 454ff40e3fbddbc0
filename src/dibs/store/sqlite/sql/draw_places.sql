-- Promise: these new tasks have their places in the races of their lines. Parameters: first and last id. Rows: none.
UPDATE dibs_tasks SET {{fresh_keys: dibs_tasks.max_attempts}} WHERE id BETWEEN :first AND :last
