-- Promise: nobody waits for these tasks, nor they for anybody. Parameters: ids. Rows: none.
DELETE FROM dibs_edges WHERE parent_id = ANY(%(ids)s::bigint[]) OR child_id = ANY(%(ids)s::bigint[])
