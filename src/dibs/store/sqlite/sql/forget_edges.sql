-- Promise: nobody waits for these tasks, nor they for anybody. Parameters: ids. Rows: none.
DELETE FROM dibs_edges WHERE parent_id IN (SELECT value FROM json_each(:ids))
    OR child_id IN (SELECT value FROM json_each(:ids))
