-- Promise: each child waits for its parent. Parameters: of each parent_id, child_id. Rows: none.
INSERT INTO dibs_edges (parent_id, child_id)
SELECT parent_id, child_id FROM json_to_recordset(%(said)s::json) AS edge (parent_id bigint, child_id bigint)
